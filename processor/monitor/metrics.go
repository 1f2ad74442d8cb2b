package monitor

import (
	"context"
	"math"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Metrics that are looked up at each scrape. A scrape must not disturb what it measures,
// and must come back while NATS does not: what is expensive is cached (sampler) and bounded
// in time (endsTimeout, countShare), and a metric that is unknown is left out rather than
// 0. An alert can tell the absence of a number from a good one.

// Metrics computed at each scrape.
var (
	metricInfo  = describe("build_info", "Always 1; the labels name the version of lapse and of Go, the machine, the process id there, and the id in status.", "version", "go_version", "host", "pid", "process")
	metricReady = describe("ready", "Whether the process is ready; /readyz has the reasons if not.")
	metricRole  = describe("role", "1 for the role of the process, 0 for the others. A writer whose lease has expired is a standby; none has no copy.", "role")

	metricFolded    = describe("folded_sequence", "Last sequence of the log that the projection has folded.")
	metricEnd       = describe("log_last_sequence", "Last sequence of the log; absent while the log is unreachable.")
	metricFirst     = describe("log_first_sequence", "First sequence of the log; absent while the log is unreachable.")
	metricLag       = describe("fold_lag_events", "Sequences of the log not yet folded; absent while the log is unreachable.")
	metricLagTime   = describe("fold_lag_seconds", "Age of the oldest known event that is not yet folded.")
	metricTime      = describe("log_timestamp_seconds", "Log time of the last folded event, in seconds since 1970.")
	metricTimeOld   = describe("log_time_seconds", "The name of lapse_log_timestamp_seconds in 0.3.0; the next release has it no more.")
	metricCatchUp   = describe("catch_up_ratio", "Share of the log folded by the start, from 0 to 1.")
	metricDocuments = describe("documents", "Number of live documents.")
	metricBytes     = describe("documents_bytes", "Size of live documents in bytes.")
	metricOnHold    = describe("documents_held", "Live documents that neither expire nor can be deleted.")
	metricPending   = describe("documents_pending_expiry", "Live documents with a deadline.")
	metricOverdue   = describe("documents_overdue", "Documents past their deadline whose expiry is not yet in the log.")
	metricNumber    = describe("collections", "Number of collections.")
	metricBehind    = describe("mutations_behind", "Published mutations not yet judged; absent while their stream is unreachable.")
	metricForeign   = describe("log_foreign_messages_total", "Messages in the log that are not events of lapse, and were skipped.")
	metricAppended  = describe("log_appended_bytes_total", "Bytes of event bodies appended by this process.")
	metricLogBytes  = describe("log_bytes", "Size of the log in bytes, sampled every minute.")
	metricMutBytes  = describe("mutations_bytes", "Size of the mutations stream in bytes, sampled every minute.")
	metricLimit     = describe("storage_limit_bytes", "The limit of the streams' space that has the least left: max_bytes of log or mutations, the account's, or, of a server that lapse runs, max_file_store (server) or disk. With replicas, the bytes of one.", "limit")
	metricLeft      = describe("storage_left_bytes", "Bytes left below lapse_storage_limit_bytes.", "limit")
	metricFull      = describe("storage_full_seconds", "Estimated seconds until the storage is full, if it goes on growing as in the last hour; +Inf if it has not grown, or is known for less than ten minutes.", "limit")
	metricObjective = describe("expiry_lateness_objective_seconds", "Lateness that 99 of 100 expiries should not exceed.")
	metricInFlight  = describe("events_in_flight", "Events in flight: decided, not yet acknowledged and folded.")

	metricRequests = describe("requests_total", "Requests answered, by code.", "operation", "code")
	metricQueue    = describe("queue_length", "Requests waiting in a queue.", "queue")
	metricQueueCap = describe("queue_capacity", "Capacity of a queue; beyond it requests are refused with 429.", "queue")
	metricHeld     = describe("requests_held_bytes", "Bytes of requests larger than 4 KiB that wait for their reply.")

	metricRoles     = describe("role_changes_total", "Role changes.")
	metricFences    = describe("fence_moves_total", "Times this process moved the fence, as a writer does when it starts or recovers.")
	metricFailures  = describe("append_failures_total", "Appends that failed or timed out without acknowledgement.")
	metricAway      = describe("log_unreachable", "1 while the log is unreachable.")
	metricNoLease   = describe("lease_unreachable", "1 while a standby can neither read the lease nor take an expired one, and so cannot take over.")
	metricOutages   = describe("log_outages_total", "Times the log became unreachable.")
	metricFaults    = describe("request_failures_total", "Requests that failed because of an internal error.")
	metricSlow      = describe("slow_total", "Appends, folds and requests slower than one second.")
	metricRemade    = describe("projection_rebuilds_total", "Projections rebuilt because they did not fit the log.")
	metricUseless   = describe("snapshots_unusable_total", "Snapshots from which the projection could not be restored.")
	metricMade      = describe("snapshots_made_total", "Scheduled snapshots created and verified.")
	metricSnapTime  = describe("snapshot_last_timestamp_seconds", "Creation time of the newest sound snapshot, in seconds since 1970; 0 without one. Absent if snapshots are off.")
	metricSnapOld   = describe("snapshot_last_time_seconds", "The name of lapse_snapshot_last_timestamp_seconds in 0.3.0; the next release has it no more.")
	metricSnapSeq   = describe("snapshot_last_sequence", "Last log sequence in the newest snapshot.")
	metricSnapBytes = describe("snapshot_last_bytes", "Size of the newest snapshot in bytes.")
	metricKept      = describe("retention_failures_total", "Failed rounds of snapshot and retention; each keeps the whole log.")

	metricSuspect = describe("clock_suspect", "1 while the clock is not trusted: nothing expires and writes are refused.")
	metricOffset  = describe("clock_offset_seconds", "Seconds by which the clock is ahead of elapsed time.")
	metricRefused = describe("clock_refused_total", "Requests refused because the clock was not trusted.")

	metricConnected  = describe("nats_connected", "1 while a connection to NATS is up.", "connection")
	metricReconnects = describe("nats_reconnects_total", "Reconnects to NATS.", "connection")
	metricNATSIn     = describe("nats_received_bytes_total", "Bytes of messages received from NATS.", "connection")
	metricNATSOut    = describe("nats_sent_bytes_total", "Bytes of messages sent to NATS.", "connection")
	metricNATSInMsg  = describe("nats_received_messages_total", "Messages received from NATS.", "connection")
	metricNATSOutMsg = describe("nats_sent_messages_total", "Messages sent to NATS.", "connection")

	metricDisk      = describe("projection_bytes", "Size of the projection's files in bytes.")
	metricAvailable = describe("projection_disk_available_bytes", "Free bytes on the projection's disk.")
	metricTotal     = describe("projection_disk_size_bytes", "Size of the projection's disk in bytes.")
	metricL0Levels  = describe("projection_l0_sublevels", "Sublevels of level 0 of Pebble, which compaction has yet to merge; writes stop at 24.")
	metricMemory    = describe("memory_limit_bytes", "Bytes of memory that the process should stay below; 0 if it has no limit.")
	metricResident  = describe("memory_resident_bytes", "Physical memory of the process, in bytes, with pages of the program's file; 0 where the system does not tell.")
	metricHeap      = describe("memory_heap_bytes", "Bytes of objects in Go's heap of the process, garbage included. In a build without cgo, such as a release, the cache and memtables are there, too.")
	metricCache     = describe("memory_cache_bytes", "Bytes in the block cache, which the databases of a process share.")
	metricMemTables = describe("memory_memtable_bytes", "Bytes of the memtables of Pebble.")
	metricHits      = describe("projection_cache_hits_total", "Blocks of the projection found in the cache.")
	metricMisses    = describe("projection_cache_misses_total", "Blocks of the projection read from disk; a larger --cache-bytes makes them fewer.")
)

var described []*prometheus.Desc

// describe makes the description of a metric with the label database, and lists it in
// described, for Describe and the manual.
func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("lapse_"+name, help, append([]string{"database"}, labels...), nil)
	described = append(described, d)
	return d
}

// Describe implements prometheus.Collector.
func (m *Monitor) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range described {
		descs <- d
	}
	for _, c := range m.all {
		c.Describe(descs)
	}
}

// sending sends the metrics of a scrape. Its methods add the label database.
type sending struct {
	to       chan<- prometheus.Metric
	database string
}

func (s sending) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{s.database}, labels...)...)
}

// timestamp sends a time in ms since 1970, under its former name, too.
func (s sending) timestamp(d, former *prometheus.Desc, ms int64) {
	s.gauge(d, float64(ms)/1000)
	s.gauge(former, float64(ms)/1000)
}

func (s sending) count(d *prometheus.Desc, value uint64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), append([]string{s.database}, labels...)...)
}

func (s sending) flag(d *prometheus.Desc, value bool, labels ...string) {
	number := 0.
	if value {
		number = 1
	}
	s.gauge(d, number, labels...)
}

// Collect implements prometheus.Collector. It asks NATS for the ends of two streams, and
// counts documents for at most a fiftieth of the time, however many are overdue.
func (m *Monitor) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(metrics)
	}
	s := sending{metrics, string(m.database)}
	s.flag(metricReady, len(m.Ready()) == 0)
	m.mu.Lock()
	state, connections := m.state, make(map[string]*nats.Conn, len(m.state.connections))
	for name, c := range m.state.connections {
		connections[name] = c.nc
	}
	m.mu.Unlock()
	s.counted(&state)
	s.count(metricSlow, m.slowed.Load())
	for name, nc := range connections {
		s.connection(name, nc)
	}
	p, done := m.use()
	defer done()
	defer func() { s.role(&state, p) }() // last: what comes before may wait for NATS
	// Nothing but the progress of the start is known. An idle database has nothing to catch
	// up with.
	if p == nil {
		ratio := 0.
		if end := state.progress.End; state.idle {
			ratio = 1
		} else if end > 0 {
			ratio = float64(state.progress.Seq) / float64(end)
		}
		s.gauge(metricCatchUp, ratio)
		return
	}
	s.gauge(metricCatchUp, 1)
	now := p.Sample()
	host, pid := observe.ThisProcess()
	s.gauge(metricInfo, 1, m.Version, runtime.Version(), host, strconv.Itoa(pid), m.Process)
	s.gauge(metricObjective, m.Objective.Seconds())
	s.gauge(metricInFlight, float64(m.pending.Load()))
	m.collectLog(s, p, &now)
	// As of the last sample: a scrape does not ask for it.
	s.storage(m.Storage())
	m.collectDocuments(s, p)
	s.requests(&now)
	s.clock(now.Clock)
	health := p.Health()
	s.projection(&health)
	s.memory(p.Memory())
	s.snapshots(now.Snapshots)
}

// role sends the role at this moment; p is nil while the processor does not serve.
func (s sending) role(h *health, p Source) {
	is := h.role
	if p != nil && is == observe.Writer {
		is = p.Sample().Role
	}
	for _, role := range []observe.Role{observe.Writer, observe.Standby, observe.None} {
		s.flag(metricRole, is == role && h.failed == nil, string(role))
	}
}

// counted sends the counts of events.
func (s sending) counted(h *health) {
	n := &h.counts
	s.count(metricRoles, n.roleChanges)
	s.count(metricFences, n.fenceMoves)
	s.count(metricFailures, n.appendFailures)
	s.count(metricOutages, n.logOutages)
	s.count(metricFaults, n.requestFailures)
	s.count(metricRemade, n.projectionsRemade)
	s.count(metricUseless, n.snapshotsUseless)
	s.flag(metricAway, !h.logSince.IsZero())
	s.flag(metricNoLease, !h.leaseSince.IsZero())
}

func (s sending) connection(name string, nc *nats.Conn) {
	stats := nc.Stats()
	s.flag(metricConnected, nc.IsConnected(), name)
	s.count(metricReconnects, stats.Reconnects, name)
	s.count(metricNATSIn, stats.InBytes, name)
	s.count(metricNATSOut, stats.OutBytes, name)
	s.count(metricNATSInMsg, stats.InMsgs, name)
	s.count(metricNATSOutMsg, stats.OutMsgs, name)
}

func (s sending) requests(now *Sample) {
	for _, a := range now.Answered {
		s.count(metricRequests, a.Requests, a.Operation, a.Code)
	}
	for _, q := range now.Queues {
		s.gauge(metricQueue, float64(q.Length), q.Name)
		s.gauge(metricQueueCap, float64(q.Places), q.Name)
	}
	s.gauge(metricHeld, float64(now.Held))
}

func (s sending) clock(clock schema.Clock) {
	s.flag(metricSuspect, clock.Suspect)
	s.gauge(metricOffset, float64(clock.OffByMs)/1000)
	s.count(metricRefused, clock.Refused)
}

func (s sending) projection(h *projections.Health) {
	s.gauge(metricDisk, float64(h.Bytes))
	if h.Total > 0 {
		s.gauge(metricAvailable, float64(h.Available))
		s.gauge(metricTotal, float64(h.Total))
	}
	s.gauge(metricL0Levels, float64(h.L0Sublevels))
	s.count(metricHits, uint64(h.CacheHits))
	s.count(metricMisses, uint64(h.CacheMisses))
}

func (s sending) memory(now schema.Memory) {
	s.gauge(metricMemory, float64(now.LimitBytes))
	s.gauge(metricResident, float64(now.ResidentBytes))
	s.gauge(metricHeap, float64(now.HeapBytes))
	s.gauge(metricCache, float64(now.CacheBytes))
	s.gauge(metricMemTables, float64(now.MemtableBytes))
}

// snapshots sends the state of snapshots; nil is that they are off, and only their counters are
// there.
func (s sending) snapshots(now *SnapshotSample) {
	if now == nil {
		s.count(metricMade, 0)
		s.count(metricKept, 0)
		return
	}
	s.count(metricMade, uint64(now.Made))
	s.count(metricKept, uint64(now.Failed))
	newest := now.Newest
	if newest == nil {
		s.timestamp(metricSnapTime, metricSnapOld, 0)
		return
	}
	s.timestamp(metricSnapTime, metricSnapOld, newest.Created)
	s.gauge(metricSnapSeq, float64(newest.Seq))
	s.gauge(metricSnapBytes, float64(newest.Bytes))
}

// sampler caches values that are expensive to get. sampling is held while they are gotten,
// so that several scrapers at a time ask once.
type sampler struct {
	sampling sync.Mutex
	counts   tallies

	endsAt      time.Time // when NATS was last asked for ends
	ends        StreamEnds
	known       bool   // ends is valid: NATS replied
	target      uint64 // end of the log not yet folded at targetSince, 0 for none
	targetSince time.Time
}

// tallies are the counts of all collections at one time.
type tallies struct {
	DocumentCounts
	at   time.Time
	took time.Duration
	ok   bool
}

// countShare limits the counting of documents to 1/countShare of the time.
const countShare = 50

// collectDocuments sends the counts of documents, which may be cached: counting walks what
// is overdue, and takes at most 1/countShare of the time, however often somebody scrapes.
func (m *Monitor) collectDocuments(s sending, from Source) {
	m.sampling.Lock()
	defer m.sampling.Unlock()
	if n := &m.counts; !n.ok || time.Since(n.at) >= countShare*n.took {
		n.at = time.Now()
		counts, err := from.CountDocuments()
		n.DocumentCounts, n.ok, n.took = counts, err == nil, time.Since(n.at)
	}
	if !m.counts.ok {
		return
	}
	s.gauge(metricNumber, float64(m.counts.Collections))
	s.gauge(metricDocuments, float64(m.counts.Documents))
	s.gauge(metricBytes, float64(m.counts.Bytes))
	s.gauge(metricOnHold, float64(m.counts.Held))
	s.gauge(metricPending, float64(m.counts.Pending))
	s.gauge(metricOverdue, float64(m.counts.Overdue))
}

const (
	// endsTimeout is how long a scrape waits for NATS.
	endsTimeout = time.Second
	// endsFor is how long its answer is reused.
	endsFor = time.Second
)

// collectLog sends the positions of the log and of the projection.
func (m *Monitor) collectLog(s sending, from Source, now *Sample) {
	m.sampling.Lock()
	defer m.sampling.Unlock()
	if time.Since(m.endsAt) >= endsFor {
		ctx, cancel := context.WithTimeout(context.Background(), endsTimeout)
		ends, err := from.Ends(ctx)
		cancel()
		m.ends, m.known = ends, err == nil
		m.endsAt = time.Now()
	}
	cursor := &now.Cursor
	s.gauge(metricFolded, float64(cursor.Seq))
	s.timestamp(metricTime, metricTimeOld, cursor.Time)
	s.count(metricForeign, cursor.Foreign)
	s.count(metricAppended, now.Appended)
	if m.known {
		s.gauge(metricEnd, float64(m.ends.Last))
		s.gauge(metricFirst, float64(m.ends.First))
		s.gauge(metricLag, float64(m.ends.Last-min(cursor.Seq, m.ends.Last)))
		s.gauge(metricBehind, float64(m.ends.Behind))
	}
	s.gauge(metricLagTime, m.lag(cursor.Seq).Seconds())
}

// storage sends the space of the streams, if it is known.
func (s sending) storage(now *schema.Storage) {
	if now == nil {
		return
	}
	s.gauge(metricLogBytes, float64(now.LogBytes))
	s.gauge(metricMutBytes, float64(now.MutationsBytes))
	if l := now.Limit; l != nil {
		s.gauge(metricLimit, float64(l.Bytes), l.Name)
		s.gauge(metricLeft, float64(l.LeftBytes), l.Name)
		full := math.Inf(1)
		if l.FullInHours != nil {
			full = *l.FullInHours * time.Hour.Seconds()
		}
		s.gauge(metricFull, full, l.Name)
	}
}

// lag returns how long the log has been known to have unfolded events. It is 0 when the end
// that was seen last is folded, even if there is a newer one: that one has just begun to
// wait. The caller holds sampling.
func (m *Monitor) lag(folded uint64) time.Duration {
	if folded >= m.target {
		m.target = 0
		if m.known && m.ends.Last > folded {
			m.target, m.targetSince = m.ends.Last, m.endsAt
		}
	}
	if m.target == 0 {
		return 0
	}
	return time.Since(m.targetSince)
}
