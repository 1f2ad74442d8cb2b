package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Errors of Begin.
var (
	ErrRunning = errors.New("the request with this key is still running: try again")
	ErrOther   = errors.New("this key was used for another request")
)

// Keys are documents. Creating one takes the key, so one of concurrent callers wins.
type Keys struct {
	coll      *client.Collection
	run, keep time.Duration
}

// Request is the document of a key.
type Request struct {
	Print string `json:"print"`           // of its content
	Reply *Reply `json:"reply,omitempty"` // nil while it runs
}

// Reply is what repeats get.
type Reply struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// OpenKeys opens the collection, and creates it the first time. A request may run for run;
// then another may take its key. A key ends keep after it was taken. Both are whole seconds.
func OpenKeys(ctx context.Context, c *client.Client, run, keep time.Duration) (*Keys, error) {
	if run < 2*time.Second || keep <= run {
		return nil, client.ErrBadRequest.With("keys of requests that run for %v are kept for %v: use 2s or more, and longer", run, keep)
	}
	coll, err := c.OpenCollection(ctx, "idempotency-keys", client.TTLPerDocument())
	return &Keys{coll, run, keep}, err
}

// Begin takes a key, or returns the reply to the request that has it. Repeats of a request,
// and nothing else, have the same print.
func (k *Keys) Begin(ctx context.Context, key, print string) (taken client.Item[Request], reply *Reply, err error) {
	for {
		taken, err = client.Create(ctx, k.coll, key, Request{Print: print}, client.TTL(k.run))
		if !errors.Is(err, client.ErrDocumentExists) {
			return taken, nil, err
		}
		had, err := client.Get[Request](ctx, k.coll, key)
		switch {
		case errors.Is(err, client.ErrDocumentNotFound): // freed between the two
		case err != nil:
			return taken, nil, err
		case had.Value.Print != print:
			return taken, nil, ErrOther
		case had.Value.Reply == nil:
			return taken, nil, ErrRunning
		default:
			return taken, had.Value.Reply, nil
		}
	}
}

// Complete stores the reply, and keeps the end of the key. It fails with
// client.ErrDocumentNotFound or client.ErrPreconditionFailed if the key has been freed.
func (k *Keys) Complete(ctx context.Context, taken client.Item[Request], r Reply) error {
	for began := time.Now(); ; {
		_, err := client.Replace(ctx, k.coll, taken.ID, Request{taken.Value.Print, &r}, client.IfMatch(taken.ETag),
			client.ExpireAt(taken.Modified.Add(k.keep)), client.MsgID("complete-"+taken.ETag))
		if failed, ok := errors.AsType[*client.Error](err); !ok || !failed.Retryable() || time.Since(began) > k.run {
			return err
		}
		time.Sleep(100 * time.Millisecond) // until another process of lapse takes over
	}
}

// Release frees the key, so that a repeat runs.
func (k *Keys) Release(ctx context.Context, taken client.Item[Request]) error {
	return client.Delete(ctx, k.coll, taken.ID, client.IfMatch(taken.ETag))
}
