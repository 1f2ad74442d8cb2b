package eventlog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestAcceptedGap: a gap is accepted if the WriterStarted after it records it,
// wherever in the gap a read begins; any other gap is an error.
func TestAcceptedGap(t *testing.T) {
	l := &Log{DB: "main"}
	event := func(seq, lost uint64) *schema.Event {
		return &schema.Event{Seq: seq, Type: schema.WriterStarted, Body: fmt.Appendf(nil, `{"writer":"w","lost":%d}`, lost)}
	}
	for name, test := range map[string]struct {
		from   uint64
		events []*schema.Event
		ok     bool
	}{
		"none":                             {3, []*schema.Event{{Seq: 3}, {Seq: 4}, {Seq: 5}}, true},
		"accepted":                         {3, []*schema.Event{{Seq: 3}, event(6, 4), {Seq: 7}}, true},
		"from its first":                   {4, []*schema.Event{event(6, 4), {Seq: 7}}, true},
		"from its last":                    {5, []*schema.Event{event(6, 4), {Seq: 7}}, true},
		"accepted in part":                 {3, []*schema.Event{{Seq: 3}, event(7, 5)}, false},
		"not accepted":                     {3, []*schema.Event{{Seq: 3}, {Seq: 5}}, false},
		"another gap after it":             {3, []*schema.Event{{Seq: 3}, event(6, 4), {Seq: 8}}, false},
		"a writer, no gap":                 {3, []*schema.Event{{Seq: 3}, event(4, 0), {Seq: 5}}, true},
		"a writer that does not record it": {3, []*schema.Event{{Seq: 3}, event(5, 0)}, false},
	} {
		var err error
		visit := l.Contiguous(test.from, func(*schema.Event) error { return nil })
		for _, e := range test.events {
			if err == nil {
				err = visit(e)
			}
		}
		if (err == nil) != test.ok || err != nil && !errors.Is(err, ErrGap) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
