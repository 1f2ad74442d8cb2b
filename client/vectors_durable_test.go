package client

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// VectorDir has the vectors, see its README.
const VectorDir = "../schema/vectors/"

// ReadVectors reads a file of vectors, and refuses members that T does not have.
func ReadVectors[T any](t *testing.T, file string) (all []T) {
	t.Helper()
	text, err := os.ReadFile(VectorDir + file)
	check(t, err)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(all) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return all
}

// windowStep is what happens to a reader of a durable, and what it hands out then.
type windowStep struct {
	Deliver *struct {
		Seq    uint64 `json:"seq"`
		Number uint64 `json:"number"`
		Times  uint64 `json:"times"`
		Pin    string `json:"pin"`
		Bytes  int    `json:"bytes"`
	} `json:"deliver"`
	Ack    uint64 `json:"ack"`
	Lost   bool   `json:"lost"`
	Ask    bool   `json:"ask"`
	Answer *struct {
		Floor   jetstream.SequenceInfo `json:"ack_floor"`
		Pending int                    `json:"num_ack_pending"`
		First   uint64                 `json:"first"`
	} `json:"answer"`
	Next json.RawMessage `json:"next"`
	Pull int             `json:"pull"`
	May  bool            `json:"may"`
}

// TestVectorsWindows: what a reader of a durable hands out, and when it pulls.
func TestVectorsWindows(t *testing.T) {
	for _, v := range ReadVectors[struct {
		Name  string       `json:"name"`
		Steps []windowStep `json:"steps"`
	}](t, "pure/windows.json") {
		w, q := newWindow(true), inquiry{}
		for i, s := range v.Steps {
			take := w.take
			switch {
			case s.Deliver != nil:
				d := s.Deliver
				w.add(delivery{seq: d.Seq, number: d.Number, times: d.Times, pin: d.Pin, data: make([]byte, d.Bytes)})
			case s.Ack != 0:
				w.remove(s.Ack)
			case s.Lost:
				w.drop()
			case s.Ask:
				q = w.inquire()
			case s.Answer != nil:
				isFirst := q.follows(s.Answer.Floor) || s.Answer.First == q.first.seq
				take = func() (delivery, bool) { return w.settle(q, isFirst, s.Answer.Pending) }
			case s.Pull != 0:
				if may := w.hasSpace(s.Pull); may != s.May {
					t.Errorf("%s: step %d: may pull %d: %t", v.Name, i, s.Pull, may)
				}
			}
			if s.Next == nil && s.Answer == nil {
				continue
			}
			next := "null"
			if d, ok := take(); ok {
				text, _ := json.Marshal(d.seq)
				next = string(text)
			}
			if next != string(s.Next) {
				t.Errorf("%s: step %d: hands out %s, want %s", v.Name, i, next, s.Next)
			}
		}
	}
}

// TestVectorsPulls: the sizes of the pulls of a reader of a durable.
func TestVectorsPulls(t *testing.T) {
	for _, v := range ReadVectors[struct {
		Name  string `json:"name"`
		Pulls []struct {
			Size        int  `json:"size"`
			Received    int  `json:"received"`
			Bytes       int  `json:"bytes"`
			Redelivered bool `json:"redelivered"`
		} `json:"pulls"`
	}](t, "pure/pulls.json") {
		w, size := newWindow(true), 1
		for i, p := range v.Pulls {
			if size != p.Size {
				t.Errorf("%s: pull %d is of %d messages, want %d", v.Name, i, size, p.Size)
			}
			size = w.nextGroup(p.Size, p.Received, p.Bytes, p.Redelivered)
		}
	}
}

// TestVectorsTries: how often the handler of the first event has failed before.
func TestVectorsTries(t *testing.T) {
	for _, v := range ReadVectors[struct {
		Name    string `json:"name"`
		Seq     uint64 `json:"seq"`
		Times   uint64 `json:"times"`
		After   uint64 `json:"after"`
		Tries   string `json:"tries"`
		Failed  uint64 `json:"failed"`
		Crashed bool   `json:"crashed"`
	}](t, "pure/tries.json") {
		failed, crashed := readTries(map[string]string{"lapse.tries": v.Tries}).of(v.Seq, v.Times, v.After)
		if failed != v.Failed || crashed != v.Crashed {
			t.Errorf("%s: %d, %t, want %d, %t", v.Name, failed, crashed, v.Failed, v.Crashed)
		}
	}
}
