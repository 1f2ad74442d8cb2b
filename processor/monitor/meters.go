package monitor

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Metrics of what happens too often to look at each time: every request, append and fold.
// They are counted where they happen, by counters that were looked up when the monitor was
// made: a look-up by labels costs a hash and a lock, a counter one atomic addition.
//
// Counters that may stay at 0 for long exist from the beginning (refusals): the rate of a
// counter that appears with value 1 is 0, and an alert on the first refusal would miss it.

// meters count events too frequent for an EventListener. Their children are looked up
// beforehand, so that each count takes nanoseconds. Indexes of two are request and stream,
// or single and batch.
type meters struct {
	mutations       *prometheus.CounterVec
	succeeded       [schema.Ops][2]prometheus.Counter // of mutations, by op and source
	batchOperations prometheus.Counter
	events          [schema.EventTypes]prometheus.Counter
	expiries        map[schema.Rule]prometheus.Counter
	lateness        prometheus.Histogram
	appends         [2]prometheus.Histogram // durations of single appends and atomic batches
	appended        [2]prometheus.Histogram // their events
	syncs           prometheus.Counter
	folds           prometheus.Histogram
	requests        [len(schema.Operations) + 1]prometheus.Histogram // by schema.OperationIndex

	all []prometheus.Collector
}

// Buckets of classic histograms; the durations are in seconds. Native histograms have
// finer ones.
var (
	latenessBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	durationBuckets = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	sizeBuckets     = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}
)

// native also makes the histogram native, with buckets that grow by a tenth.
func native(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor = 1.1
	o.NativeHistogramMaxBucketNumber = 160
	o.NativeHistogramMinResetDuration = time.Hour
	return o
}

// newMeters makes the meters of one database, whose name is a constant label. The help
// texts are those of docs/metrics.md, which is generated from them.
func newMeters(labels prometheus.Labels) *meters {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "lapse", Name: name, Help: help, ConstLabels: labels}
	}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: "lapse", Name: name, Help: help, ConstLabels: labels, Buckets: buckets}
	}
	m := &meters{
		mutations: prometheus.NewCounterVec(prometheus.CounterOpts(opts("mutations_total", "Mutations decided by this process, counted once durable, by source (request or stream) and outcome.")),
			[]string{"op", "source", "outcome"}),
		batchOperations: prometheus.NewCounter(prometheus.CounterOpts(opts("batch_operations_total", "Operations in mutating batches."))),
		lateness: prometheus.NewHistogram(native(histogram("expiry_lateness_seconds",
			"Log time of DocumentExpired minus the moment the document became due.", latenessBuckets))),
		syncs: prometheus.NewCounter(prometheus.CounterOpts(opts("log_syncs_total", "Disk syncs of the log that appends waited for; none with durability os."))),
		folds: prometheus.NewHistogram(histogram("fold_duration_seconds", "Time to fold the events of one acknowledgement.", durationBuckets)),
	}
	events := prometheus.NewCounterVec(prometheus.CounterOpts(opts("events_total", "Events appended to the log by this process.")), []string{"type"})
	for t := schema.CollectionCreated; int(t) < len(m.events); t++ {
		m.events[t] = events.WithLabelValues(t.String())
	}
	for op := range m.succeeded {
		for i, source := range sources {
			m.succeeded[op][i] = m.mutations.WithLabelValues(opName(schema.Op(op)), source, outcomeOf(nil))
			for _, fault := range refusals[op] {
				m.mutations.WithLabelValues(opName(schema.Op(op)), source, fault.Name)
			}
		}
	}
	for _, fault := range []*schema.Error{nil, schema.ErrBadRequest, schema.ErrFailedDependency, schema.ErrTooLarge} {
		m.mutations.WithLabelValues("batch", sources[0], outcomeOf(fault))
	}
	expiries := prometheus.NewCounterVec(prometheus.CounterOpts(opts("expiries_total", "DocumentExpired events appended by this process, by the TTL that applied.")), []string{"rule"})
	m.expiries = map[schema.Rule]prometheus.Counter{}
	for _, rule := range []schema.Rule{schema.RuleDocument, schema.RuleCollection} {
		m.expiries[rule] = expiries.WithLabelValues(rule.String())
	}
	durations := prometheus.NewHistogramVec(native(histogram("append_duration_seconds", "Time from sending an append to its acknowledgement, sync included.", durationBuckets)), []string{"kind"})
	sizes := prometheus.NewHistogramVec(histogram("append_events", "Events per append.", sizeBuckets), []string{"kind"})
	for i, kind := range []string{"single", "batch"} {
		m.appends[i], _ = durations.WithLabelValues(kind).(prometheus.Histogram)
		m.appended[i], _ = sizes.WithLabelValues(kind).(prometheus.Histogram)
	}
	requests := prometheus.NewHistogramVec(histogram("request_duration_seconds", "Time from the arrival of a request to its reply.", durationBuckets), []string{"operation"})
	for i := range m.requests {
		m.requests[i], _ = requests.WithLabelValues(schema.OperationName(i)).(prometheus.Histogram)
	}
	m.all = []prometheus.Collector{m.mutations, m.batchOperations, events, expiries, m.lateness, durations, sizes, m.syncs, m.folds, requests}
	return m
}

// refusals are the errors with which an operation may be refused: their counters exist before
// the first one, which a rate would miss otherwise.
var refusals = [schema.Ops][]*schema.Error{
	schema.NoOp:              {schema.ErrBadRequest},
	schema.CollectionCreate:  {schema.ErrBadRequest, schema.ErrBadTTL, schema.ErrCollectionExists, schema.ErrTooLarge},
	schema.CollectionReplace: {schema.ErrBadRequest, schema.ErrBadTTL, schema.ErrCollectionNotFound, schema.ErrPreconditionFailed, schema.ErrTooLarge},
	schema.CollectionDelete:  {schema.ErrBadRequest, schema.ErrCollectionNotFound, schema.ErrPreconditionFailed, schema.ErrDocumentHeld},
	schema.DocumentCreate:    {schema.ErrBadRequest, schema.ErrBadID, schema.ErrBadTTL, schema.ErrCollectionNotFound, schema.ErrDocumentExists, schema.ErrTooLarge},
	schema.DocumentReplace:   written,
	schema.DocumentUpsert:    written,
	schema.DocumentPatch:     written,
	schema.DocumentDelete:    append(found, schema.ErrDocumentHeld),
	schema.DocumentTouch:     append(found, schema.ErrBadTTL),
	schema.DocumentRestore:   {schema.ErrBadRequest, schema.ErrBadID, schema.ErrBadTTL, schema.ErrCollectionNotFound, schema.ErrDocumentExists, schema.ErrVersionNotFound, schema.ErrTooLarge},
	schema.DocumentHold:      append(found, schema.ErrTooLarge),
	schema.DocumentRelease:   append(found, schema.ErrNotHeld),
}

var (
	found   = slices.Clip([]*schema.Error{schema.ErrBadRequest, schema.ErrBadID, schema.ErrCollectionNotFound, schema.ErrDocumentNotFound, schema.ErrPreconditionFailed})
	written = append(found, schema.ErrBadTTL, schema.ErrTooLarge)
)

// Beat implements writer.Meter: it records that the writer's loop runs, and the number of
// events in flight.
func (m *Monitor) Beat(pending int) {
	m.beaten.Store(time.Now().UnixNano())
	m.pending.Store(int64(pending))
}

// Replied implements writer.Meter: it counts a mutation once its outcome is durable.
func (m *Monitor) Replied(mutation *schema.Mutation, batch *schema.Batch, fault *schema.Error) {
	switch {
	case batch != nil:
		m.batchOperations.Add(float64(len(batch.Operations)))
		m.mutations.WithLabelValues("batch", sources[0], outcomeOf(fault)).Inc()
	case mutation == nil: // an internal event
	case fault == nil:
		m.succeeded[mutation.Op][sourceOf(mutation)].Inc()
	default:
		m.mutations.WithLabelValues(opName(mutation.Op), sources[sourceOf(mutation)], fault.Name).Inc()
		if mutation.Recorded {
			m.emit()(observe.MutationRejected{Cause: mutation.Cause, Op: mutation.Op, Fault: fault})
		}
	}
}

// sources are the sources of mutations.
var sources = [2]string{"request", "stream"}

// sourceOf returns the index in sources: a mutation of the stream is recorded in the log.
func sourceOf(mutation *schema.Mutation) int {
	if mutation.Recorded {
		return 1
	}
	return 0
}

func opName(op schema.Op) string {
	if op == schema.NoOp {
		return "unknown"
	}
	return op.String()
}

// outcomeOf returns the label outcome: ok, or the name of the error.
func outcomeOf(fault *schema.Error) string {
	if fault == nil {
		return "ok"
	}
	return fault.Name
}

// Stored implements writer.Meter.
func (m *Monitor) Stored(fact *projections.Fact) {
	if int(fact.Type) < len(m.events) && fact.Type != schema.NoEvent {
		m.events[fact.Type].Inc()
	}
	if fact.Type == schema.DocumentExpired {
		m.expiries[fact.Deadline.Rule].Inc()
	}
}

// Late implements writer.Meter.
func (m *Monitor) Late(ms int64) { m.meters.lateness.Observe(float64(max(ms, 0)) / 1000) }

// Acknowledged implements writer.Meter.
func (m *Monitor) Acknowledged(events int, batch, synced bool, took time.Duration) {
	kind, syncs := 0, events
	if batch {
		kind, syncs = 1, 1
	}
	m.appends[kind].Observe(took.Seconds())
	m.appended[kind].Observe(float64(events))
	if synced {
		m.syncs.Add(float64(syncs))
	}
	m.refusing.Store(false)
	m.slow("append", took, nil)
}

// Folded implements writer.Meter.
func (m *Monitor) Folded(took time.Duration) {
	m.folds.Observe(took.Seconds())
	m.slow("fold", took, nil)
}

// Answered implements service.Meter.
func (m *Monitor) Answered(operation int, took time.Duration, header schema.Header) {
	m.requests[operation].Observe(took.Seconds())
	if took > slowAfter && !takesTime[operation] {
		m.slow(schema.OperationName(operation), took, header)
	}
}

// slowAfter is the duration from which an operation is reported as slow.
const slowAfter = time.Second

// takesTime are the operations that are slow by nature, by schema.OperationIndex.
var takesTime = func() (slow [len(schema.Operations) + 1]bool) {
	for i, o := range schema.Operations {
		slow[i] = o.Limit != schema.ReadLimit && !o.Mutates()
	}
	return slow
}()

// slow reports what took longer than slowAfter, with the id of its trace if a request has
// one.
func (m *Monitor) slow(what string, took time.Duration, header schema.Header) {
	if took <= slowAfter {
		return
	}
	m.slowed.Add(1)
	m.emit()(observe.Slow{What: what, Took: took, TraceID: header.Trace().ID()})
}
