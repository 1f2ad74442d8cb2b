package client_test

import (
	"errors"
	"testing"

	"github.com/lapsedb/lapse/client"
)

func TestBatch(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	s.answer("batch.orders", 200, `{"results":[{"code":201,"body":{"id":"a","total":1,"_ts":5,"_etag":"8"}},{"code":204},{"code":404,"body":{"code":404,"error":"document_not_found","message":"m"}},{"code":424,"body":{"code":424,"error":"failed_dependency","message":"m"}},{"code":412,"body":{"code":412,"error":"precondition_failed","message":"it is at 7"}}]}`)

	batch := coll.Batch().Upsert("a", order{Total: 1}).Delete("b", client.OnlyIfMatch("7")).Get("c").Patch("d", map[string]any{"total": nil}).Create("e", order{})
	results, err := batch.RunAtomic(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(s.last().Data), `{"operations":[{"op":"upsert","id":"a","body":{"total":1}},{"op":"delete","id":"b","ifMatch":"7"},{"op":"get","id":"c"},{"op":"patch","id":"d","body":{"total":null}},{"op":"create","id":"e","body":{"total":0}}],"atomic":true}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(results) != batch.Len() {
		t.Fatalf("%d results", len(results))
	}
	if item, err := client.Decode[order](results[0]); err != nil || item.Value.Total != 1 || item.ETag != "8" || !item.Created {
		t.Errorf("%+v, %v", item, err)
	}
	if item, err := client.Decode[order](results[1]); err != nil || item.ID != "" {
		t.Errorf("%+v, %v", item, err)
	}
	if !errors.Is(results[3].Err, client.ErrFailedDependency) {
		t.Error(results[3].Err)
	}
	if err := results.Err(); !errors.Is(err, client.ErrPreconditionFailed) || err.Error() != "it is at 7" {
		t.Errorf("to blame: %v", err)
	}

	s.answer("batch.orders", 200, `{"results":[]}`)
	if _, err := coll.Batch().Run(t.Context()); err != nil || string(s.last().Data) != `{"operations":[],"atomic":false}` {
		t.Errorf("%v, %s", err, s.last().Data)
	}
	if _, err := coll.Batch().Create("a", func() {}).Run(t.Context()); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("not JSON: %v", err)
	}
}
