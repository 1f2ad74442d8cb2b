package client_test

import (
	"errors"
	"testing"

	"github.com/lapsedb/lapse/client"
)

// TestBatch: the results of a batch decode one by one, and Err is the one to blame.
func TestBatch(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	s.answer("batch.orders", 200, `{"results":[{"code":201,"body":{"id":"a","total":1,"_ts":5,"_etag":"8"}},{"code":204},{"code":424,"body":{"code":424,"error":"failed_dependency","message":"m"}},{"code":412,"body":{"code":412,"error":"precondition_failed","message":"it is at 7"}}]}`)
	batch := coll.Batch().Upsert("a", order{Total: 1}).Delete("b").Get("c").Create("d", order{})
	results, err := batch.RunAtomic(t.Context())
	if err != nil || len(results) != batch.Len() {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if item, err := client.Decode[order](results[0]); err != nil || item.Value.Total != 1 || item.ETag != "8" || !item.Created {
		t.Errorf("%+v, %v", item, err)
	}
	if item, err := client.Decode[order](results[1]); err != nil || item.ID != "" {
		t.Errorf("%+v, %v", item, err)
	}
	if err := results.Err(); !errors.Is(err, client.ErrPreconditionFailed) || err.Error() != "it is at 7" {
		t.Errorf("to blame: %v", err)
	}
	s.answer("batch.orders", 200, `{"results":[]}`)
	if _, err := coll.Batch().Run(t.Context()); err != nil || string(s.last().Data) != `{"operations":[],"atomic":false}` {
		t.Errorf("%v, %s", err, s.last().Data)
	}
}
