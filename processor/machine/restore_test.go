package machine

import (
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// touchedLog is a Log of one document: created, then touched by the following events. Those
// from named on have the content's version, as far as it was known then.
type touchedLog struct {
	last, named uint64
	reads       int
}

func (l *touchedLog) Last(schema.CollectionName, schema.DocumentID) (uint64, error) {
	return l.last, nil
}

func (l *touchedLog) Event(seq uint64) (*schema.Event, error) {
	l.reads++
	switch {
	case seq == 0 || seq > l.last:
		return nil, nil
	case seq == 1:
		return &schema.Event{Seq: seq, Type: schema.DocumentCreated, Collection: "c", ID: "a", Body: []byte("{}")}, nil
	}
	e := &schema.Event{Seq: seq, Type: schema.DocumentTouched, Collection: "c", ID: "a", Previous: schema.Version(seq - 1)}
	if seq >= l.named {
		e.Content = schema.Version(max(l.named, 2) - 1)
	}
	return e, nil
}

// TestFindFormer: the content of a version is found however often it was touched: in two
// reads, and in a log of older versions of lapse, in one for each of their touches.
func TestFindFormer(t *testing.T) {
	for _, test := range []struct {
		last, named uint64
		reads       int
	}{
		{1, 0, 1},
		{5000, 2, 2},
		{5000, 5001, 5000},
		{5000, 1500, 1500}, // upgraded after 1499 events
	} {
		log := &touchedLog{last: test.last, named: test.named}
		for _, seq := range []uint64{0, test.last} {
			log.reads = 0
			f, err := FindFormer(log, "c", "a", seq)
			if err != nil || f.Event == nil || f.Event.Seq != test.last || f.Content == nil || f.Content.Seq != 1 || log.reads != test.reads {
				t.Errorf("%+v: %+v in %d reads, %v", test, f, log.reads, err)
			}
		}
		for _, wrong := range []schema.DocumentID{"b", ""} {
			if f, err := FindFormer(log, "c", wrong, test.last); f.Event != nil || f.Content != nil || err != nil {
				t.Errorf("%+v: of %q it is %+v, %v", test, wrong, f, err)
			}
		}
	}
}
