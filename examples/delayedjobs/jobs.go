package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
)

// ErrTooLate is the error of Cancel for a job that has begun.
var ErrTooLate = errors.New("there is no such job, or it has begun")

const (
	maxTries  = 5
	firstWait = 10 * time.Second // before the second try; each later wait is twice the last
	ackWait   = 30 * time.Second // until the job of a worker that died is another one's
)

// Jobs are documents whose expiry is work.
type Jobs struct {
	client          *client.Client
	waiting, failed *client.Collection
}

// Job is what to do.
type Job struct {
	Text  string `json:"text"`
	Tries int    `json:"tries,omitempty"` // that failed
}

// OpenJobs opens the collections, and creates them the first time.
func OpenJobs(ctx context.Context, c *client.Client) (*Jobs, error) {
	waiting, err := c.OpenCollection(ctx, "jobs", client.TTLPerDocument())
	if err != nil {
		return nil, err
	}
	failed, err := c.OpenCollection(ctx, "failed-jobs")
	return &Jobs{c, waiting, failed}, err
}

// At runs a job at a moment, rounded up to a second, or at once if that has passed. A
// waiting job with this id is replaced.
func (jobs *Jobs) At(ctx context.Context, id string, at time.Time, j Job) error {
	_, err := client.Upsert(ctx, jobs.waiting, id, j, client.ExpireAt(at))
	if errors.Is(err, client.ErrBadTTL) && time.Until(at) < time.Minute {
		_, err = client.Upsert(ctx, jobs.waiting, id, j, client.TTL(time.Second))
	}
	return err
}

// Cancel removes a waiting job, or fails with ErrTooLate. Either it or the run happens.
func (jobs *Jobs) Cancel(ctx context.Context, id string) error {
	err := client.Delete(ctx, jobs.waiting, id)
	if errors.Is(err, client.ErrDocumentNotFound) {
		return ErrTooLate
	}
	return err
}

// Run does a job. It runs again after an error, and after a crash of its process.
type Run func(ctx context.Context, id string, j Job) error

// Work runs jobs, one at a time, until ctx is done. All calls, in any number of processes,
// share the work: they use one consumer of the log.
func (jobs *Jobs) Work(ctx context.Context, run Run) error {
	js, err := jetstream.New(jobs.client.Conn())
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, "LAPSE_main", jetstream.ConsumerConfig{
		Durable: "jobs", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		FilterSubject: "lapse.main.events.jobs.DocumentExpired",
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = jobs.work(ctx, m, run)
		}
		if err != nil {
			return err
		}
	}
}

// work runs the job of an expiry, and acknowledges it when the job is done or waits again.
func (jobs *Jobs) work(ctx context.Context, m jetstream.Msg, run Run) error {
	e, err := client.ReadEvent(m)
	if err != nil {
		return err
	}
	var j Job
	if unreadable := json.Unmarshal(e.Body, &j); unreadable != nil {
		if err := jobs.putAside(ctx, e, e.Body, unreadable); err != nil {
			return err
		}
		return m.DoubleAck(ctx)
	}
	done := make(chan bool)
	go func() { // a job may take longer than ackWait
		for {
			select {
			case <-done:
				return
			case <-time.After(ackWait / 3):
				_ = m.InProgress()
			}
		}
	}()
	failure := run(ctx, e.ID, j)
	close(done)
	if failure != nil && ctx.Err() != nil {
		return errors.Join(ctx.Err(), m.Nak()) // another worker has it next
	}
	if failure != nil {
		if err := jobs.retry(ctx, e, j, failure); err != nil {
			return err
		}
	}
	return m.DoubleAck(ctx)
}

// retry writes the job again, unless there is a new one with its id.
func (jobs *Jobs) retry(ctx context.Context, e *client.Event, j Job, failure error) error {
	if j.Tries++; j.Tries == maxTries {
		return jobs.putAside(ctx, e, j, failure)
	}
	_, err := client.Create(ctx, jobs.waiting, e.ID, j, client.TTL(firstWait<<(j.Tries-1)), client.MsgID(fmt.Sprint("retry-", e.Seq)))
	switch {
	case errors.Is(err, client.ErrDocumentExists):
		return nil
	case errors.Is(err, client.ErrTooLarge): // with its tries
		return jobs.putAside(ctx, e, j, failure)
	}
	return err
}

// putAside keeps what is known of a job that is not tried again. Where the job makes that
// too large, or too deep, the log has it: the id is the sequence of its expiry.
func (jobs *Jobs) putAside(ctx context.Context, e *client.Event, job any, failure error) error {
	aside := map[string]any{"of": e.ID, "job": job, "error": failure.Error()}
	_, err := client.Upsert(ctx, jobs.failed, fmt.Sprint(e.Seq), aside)
	if errors.Is(err, client.ErrTooLarge) || errors.Is(err, client.ErrBadRequest) {
		delete(aside, "job")
		_, err = client.Upsert(ctx, jobs.failed, fmt.Sprint(e.Seq), aside)
	}
	return err
}
