package linear

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Ask sends one request and waits for the reply: tail is what follows
// lapse.<db>.api. in the subject, headers are names and values in turn. An
// error means that no reply came.
type Ask func(tail, body string, headers ...string) (Reply, error)

// Reply is a reply to a request.
type Reply struct {
	Code int
	Seq  uint64 // 0 if it may be below an earlier one
	Body []byte

	Unheard bool // no responders; any other 503 may come from one of several processes that got it
}

// Load describes the operations of clients on a collection.
type Load struct {
	Collection string // must exist, without other users
	IDs        int    // number of documents
	Clients    int
	Operations int     // of each client, at most
	TTLs       []int64 // TTLs to write: seconds, -1 or 0 for none
	Seed       uint64
	// Ending, if not nil, ends the load once it is closed.
	Ending <-chan struct{}
	// Pause waits between two operations of a client.
	Pause func(*rand.Rand)
	// Retry is how long to retry an operation under a Nats-Msg-Id without a reply, or
	// with one that leaves the outcome open. Other operations are tried once.
	Retry time.Duration
	// Late says that a request that timed out may arrive after a later one, as it may
	// where servers forward requests.
	Late bool
	// Dial returns the Ask of a client.
	Dial func(client int) Ask
}

// Run runs all clients at the same time and returns their operations.
func (l *Load) Run() ([]Operation, error) {
	r := &run{Load: l, seen: make([]atomic.Uint64, l.IDs)}
	all := make([][]Operation, l.Clients)
	errs := make([]error, l.Clients)
	var wg sync.WaitGroup
	for i := range l.Clients {
		wg.Go(func() { all[i], errs[i] = r.client(i) })
	}
	wg.Wait()
	var operations []Operation
	for i := range all {
		if errs[i] != nil {
			return nil, fmt.Errorf("client %d: %w", i, errs[i])
		}
		operations = append(operations, all[i]...)
	}
	return operations, nil
}

// run is a Load under way.
type run struct {
	*Load
	moments atomic.Int64
	writes  atomic.Int64
	seen    []atomic.Uint64 // by document, a version from a reply
}

func (r *run) client(client int) (done []Operation, err error) {
	random := rand.New(rand.NewPCG(r.Seed, uint64(client)))
	ask := r.Dial(client)
	for range r.Operations {
		r.Pause(random)
		if r.ended() {
			break
		}
		id := random.IntN(r.IDs)
		o := Operation{Client: client, ID: strconv.Itoa(id)}
		o.Kind = []Kind{Get, Get, Get, Get, Create, Create, Upsert, Upsert, Replace, Patch, Delete, Delete}[random.IntN(12)]
		if o.Kind != Get && o.Kind != Delete {
			o.Write.N = int(r.writes.Add(1))
			if o.Kind != Patch {
				o.Write.Base = o.Write.N
			}
			o.Write.TTL = r.TTLs[random.IntN(len(r.TTLs))]
		}
		if o.Kind != Get && o.Kind != Create && random.IntN(3) == 0 {
			o.IfMatch = r.seen[id].Load()
		}
		msgID := ""
		if o.Kind != Get && random.IntN(2) == 0 {
			msgID = fmt.Sprintf("%s %d-%d", r.Collection, client, len(done))
		}
		told, unsure, err := r.do(ask, &o, msgID, random.IntN(8) == 0)
		if err != nil {
			return done, err
		}
		if !told && !unsure {
			continue
		}
		if o.Version != 0 {
			r.seen[id].Store(o.Version)
		}
		done = append(done, o)
		if r.Late && told && unsure && o.refused() {
			done = append(done, o.late())
		}
	}
	return done, nil
}

func (r *run) ended() bool {
	select {
	case <-r.Ending:
		return true
	default:
		return false
	}
}

// do sends an operation once, or with msgID until its outcome is known. unsure says that
// a request without a reply may have changed something.
func (r *run) do(ask Ask, o *Operation, msgID string, inBatch bool) (told, unsure bool, err error) {
	tail, body, headers := r.request(o)
	if msgID != "" {
		headers = append(headers, "Nats-Msg-Id", msgID)
	} else if inBatch {
		tail, body, headers = "batch."+r.Collection, batchOf(o, body), nil
	}
	o.Called, o.Call = time.Now(), r.moments.Add(1)
	for {
		o.Attempts++
		reply, err := ask(tail, body, headers...)
		switch {
		case err != nil || reply.Code == 504:
			unsure = o.Kind != Get
		case reply.Code == 503 && r.Late && !reply.Unheard:
			unsure = o.Kind != Get // two writers for a moment: one refuses, the other may try
		case reply.Code == 503 || reply.Code == 429:
			// Not even tried, this time.
		default:
			o.Return, o.Returned = r.moments.Add(1), time.Now()
			return true, unsure, o.told(reply, headers == nil && tail == "batch."+r.Collection)
		}
		if msgID == "" || time.Since(o.Called) > r.Retry {
			o.Return = r.moments.Add(1)
			return false, unsure, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// request returns the request of an operation.
func (r *run) request(o *Operation) (tail, body string, headers []string) {
	tail = fmt.Sprintf("document.%s.%s.%s", o.Kind, r.Collection, o.ID)
	if o.IfMatch != 0 {
		headers = []string{"If-Match", strconv.FormatUint(o.IfMatch, 10)}
	}
	return tail, o.document(), headers
}

func (o *Operation) document() string {
	ttl := ""
	if o.Write.TTL != 0 {
		ttl = fmt.Sprintf(`,"ttl":%d`, o.Write.TTL)
	}
	switch o.Kind {
	case Get, Delete:
		return ""
	case Patch:
		return fmt.Sprintf(`{"n":%d%s}`, o.Write.N, ttl)
	}
	return fmt.Sprintf(`{"n":%d,"base":%d%s}`, o.Write.N, o.Write.Base, ttl)
}

// batchOf returns the body of a batch of one operation.
func batchOf(o *Operation, body string) string {
	more := ""
	if body != "" {
		more += `,"body":` + body
	}
	if o.IfMatch != 0 {
		more += fmt.Sprintf(`,"ifMatch":"%d"`, o.IfMatch)
	}
	return fmt.Sprintf(`{"operations":[{"op":"%s","id":"%s"%s}],"atomic":%t}`, o.Kind, o.ID, more, o.Call%2 == 0)
}

// told records the outcome from a reply.
func (o *Operation) told(r Reply, batch bool) error {
	o.Result = Result{Code: r.Code, Seq: r.Seq}
	body := r.Body
	if batch {
		var b struct {
			Results []struct {
				Code int
				Body json.RawMessage
			}
		}
		if err := json.Unmarshal(r.Body, &b); err != nil || r.Code != 200 || len(b.Results) != 1 {
			return fmt.Errorf("a batch came out with %d %s (%v): %s", r.Code, r.Body, err, o)
		}
		o.Code, body = b.Results[0].Code, b.Results[0].Body
	}
	switch o.Code {
	case 204, 404, 409, 412:
		return nil
	case 200, 201:
	default:
		return fmt.Errorf("%s: %s", o, body)
	}
	var document struct {
		Content
		ID   string `json:"id"`
		TS   int64  `json:"_ts"`
		Etag string `json:"_etag"`
	}
	err := json.Unmarshal(body, &document)
	if err == nil {
		o.Version, err = strconv.ParseUint(document.Etag, 10, 64)
	}
	if err != nil || document.ID != o.ID {
		return fmt.Errorf("%s: %s: %v", o, body, err)
	}
	o.Content, o.TS = document.Content, document.TS
	return nil
}
