package monitor

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// What is looked up when metrics are collected.
var (
	metricInfo  = describe("build_info", "Always 1; the labels say what runs.", "version", "go_version")
	metricReady = describe("ready", "Whether requests are served as they should be; /readyz says why not.")
	metricRole  = describe("role", "1 for the role that the process has.", "role")

	metricFolded    = describe("folded_sequence", "Last sequence of the log that is folded.")
	metricEnd       = describe("log_last_sequence", "Last sequence of the log; left out while the log does not answer.")
	metricFirst     = describe("log_first_sequence", "First sequence of the log; left out while the log does not answer.")
	metricLag       = describe("fold_lag_events", "Sequences of the log that are not folded; left out while the log does not answer.")
	metricLagTime   = describe("fold_lag_seconds", "For how long the log is known to hold what is not folded.")
	metricTime      = describe("log_time_seconds", "Log time of the last event folded, since 1970.")
	metricCatchUp   = describe("catch_up_ratio", "How much of the log was folded at the start, from 0 to 1.")
	metricDocuments = describe("documents", "Live documents.")
	metricBytes     = describe("documents_bytes", "Bytes of live documents.")
	metricPending   = describe("documents_pending_expiry", "Live documents with a deadline.")
	metricOverdue   = describe("documents_overdue", "Documents past their deadline whose expiry is not yet in the log.")
	metricNumber    = describe("collections", "Collections.")
	metricBehind    = describe("mutations_behind", "Mutations in the stream that are not yet judged; left out while it does not answer.")
	metricForeign   = describe("log_foreign_messages_total", "Messages in the log that were skipped, not being lapse's.")
	metricAppended  = describe("log_appended_bytes_total", "Bytes of the bodies that this process appended.")
	metricObjective = describe("expiry_lateness_objective_seconds", "How late expiries may be, 99 of a hundred.")
	metricInFlight  = describe("events_in_flight", "Events decided and not yet folded.")

	metricRequests = describe("requests_total", "Requests answered.", "operation", "code")
	metricQueue    = describe("queue_length", "What waits in a queue.", "queue")
	metricQueueCap = describe("queue_capacity", "What has room in a queue; beyond it requests are refused with 429.", "queue")
	metricHeld     = describe("requests_held_bytes", "Bytes of requests that have no reply yet.")

	metricRoles     = describe("role_changes_total", "How often the role changed.")
	metricFences    = describe("fence_moves_total", "How often this process moved the fence, as the writer does when it starts and when it recovers.")
	metricFailures  = describe("append_failures_total", "Appends that failed or were not acknowledged in time.")
	metricAway      = describe("log_out_of_reach", "Whether the process waits for the log.")
	metricNoLease   = describe("lease_out_of_reach", "Whether a standby cannot find out who has the lease, and so cannot take over.")
	metricOutages   = describe("log_outages_total", "How often the process found the log out of reach.")
	metricFaults    = describe("request_failures_total", "Requests that failed for a reason of lapse's own.")
	metricSlow      = describe("slow_total", "Appends, folds and requests that took longer than a second.")
	metricRemade    = describe("projection_remakes_total", "Projections that did not fit the log and were made anew.")
	metricUseless   = describe("snapshots_useless_total", "Snapshots that the projection could not be made of.")
	metricMade      = describe("snapshots_made_total", "Snapshots made and verified as often as serve was told to.")
	metricSnapTime  = describe("snapshot_last_time_seconds", "When the newest sound snapshot was made, since 1970; 0 if there is none. Left out where none are made.")
	metricSnapSeq   = describe("snapshot_last_sequence", "Up to where the log is in the newest snapshot.")
	metricSnapBytes = describe("snapshot_last_bytes", "Size of the newest snapshot.")
	metricKept      = describe("retention_failures_total", "Rounds of snapshots and retention that failed; the log is kept whole then.")

	metricSuspect = describe("clock_suspect", "Whether the clock is not believed: nothing expires then and writes are refused.")
	metricOffset  = describe("clock_offset_seconds", "How far the clock is ahead of what it should say.")
	metricRefused = describe("clock_refused_total", "Requests refused because the clock was not believed.")

	metricConnected  = describe("nats_connected", "Whether a connection to NATS is there.", "connection")
	metricReconnects = describe("nats_reconnects_total", "How often a connection to NATS was made again.", "connection")
	metricNATSIn     = describe("nats_received_bytes_total", "Bytes of messages received from NATS.", "connection")
	metricNATSOut    = describe("nats_sent_bytes_total", "Bytes of messages sent to NATS.", "connection")
	metricNATSInMsg  = describe("nats_received_messages_total", "Messages received from NATS.", "connection")
	metricNATSOutMsg = describe("nats_sent_messages_total", "Messages sent to NATS.", "connection")

	metricDisk        = describe("projection_bytes", "Bytes of the projection's files.")
	metricAvailable   = describe("projection_disk_available_bytes", "Bytes that the disk of the projection has left.")
	metricTotal       = describe("projection_disk_size_bytes", "Bytes that the disk of the projection has.")
	metricDebt        = describe("projection_compaction_debt_bytes", "Bytes that Pebble has to compact until it is even.")
	metricAmp         = describe("projection_read_amplification", "Places that Pebble looks in for a key.")
	metricL0          = describe("projection_l0_files", "Files of Pebble that overlap.")
	metricL0Levels    = describe("projection_l0_sublevels", "Levels among those; writes stop at 24.")
	metricMemTable    = describe("projection_memtable_bytes", "Bytes folded and not yet flushed.")
	metricCache       = describe("projection_cache_bytes", "Bytes of the projection in memory.")
	metricHits        = describe("projection_cache_hits_total", "Blocks found in memory.")
	metricMisses      = describe("projection_cache_misses_total", "Blocks read from disk.")
	metricFlushes     = describe("projection_flushes_total", "Flushes of what was folded.")
	metricCompactions = describe("projection_compactions_total", "Compactions.")
)

var described []*prometheus.Desc

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

// sending sends what is looked up.
type sending struct {
	to       chan<- prometheus.Metric
	database string
}

func (s sending) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{s.database}, labels...)...)
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

// Collect implements prometheus.Collector. It costs little, and asks NATS for
// the ends of two streams: documents are counted so seldom that it takes no more
// than a fiftieth of the time, however many are overdue.
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
	for _, role := range []observe.Role{observe.Writer, observe.Standby} {
		s.flag(metricRole, state.role == role, string(role))
	}
	s.told(&state)
	s.count(metricSlow, m.slowed.Load())
	for name, nc := range connections {
		s.connection(name, nc)
	}
	p, done := m.use()
	defer done()
	if p == nil {
		ratio := 0.
		if end := state.progress.End; end > 0 {
			ratio = float64(state.progress.Seq) / float64(end)
		}
		s.gauge(metricCatchUp, ratio)
		return
	}
	s.gauge(metricCatchUp, 1)
	now := p.Sample()
	s.gauge(metricInfo, 1, m.Version, runtime.Version())
	s.gauge(metricObjective, m.Objective.Seconds())
	s.gauge(metricInFlight, float64(m.pending.Load()))
	m.collectLog(s, p, &now)
	m.collectDocuments(s, p)
	s.requests(&now)
	s.clock(now.Clock)
	health := p.Health()
	s.projection(&health)
	if now.Snapshots != nil {
		s.snapshots(now.Snapshots)
	}
}

// told sends the counts of events.
func (s sending) told(h *health) {
	n := &h.counts
	s.count(metricRoles, n.roleChanges)
	s.count(metricFences, n.fenceMoves)
	s.count(metricFailures, n.appendFailures)
	s.count(metricOutages, n.logOutages)
	s.count(metricFaults, n.requestFailures)
	s.count(metricRemade, n.projectionsRemade)
	s.count(metricUseless, n.snapshotsUseless)
	s.flag(metricAway, !h.logSince.IsZero())
	s.flag(metricNoLease, h.leaseErr != nil)
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
	s.gauge(metricDebt, float64(h.CompactionDebt))
	s.gauge(metricAmp, float64(h.ReadAmplification))
	s.gauge(metricL0, float64(h.L0Files))
	s.gauge(metricL0Levels, float64(h.L0Sublevels))
	s.gauge(metricMemTable, float64(h.MemTableBytes))
	s.gauge(metricCache, float64(h.CacheBytes))
	s.count(metricHits, uint64(h.CacheHits))
	s.count(metricMisses, uint64(h.CacheMisses))
	s.count(metricFlushes, uint64(h.Flushes))
	s.count(metricCompactions, uint64(h.Compactions))
}

func (s sending) snapshots(now *SnapshotSample) {
	s.count(metricMade, uint64(now.Made))
	s.count(metricKept, uint64(now.Failed))
	newest := now.Newest
	if newest == nil {
		s.gauge(metricSnapTime, 0)
		return
	}
	s.gauge(metricSnapTime, float64(newest.Created)/1000)
	s.gauge(metricSnapSeq, float64(newest.Seq))
	s.gauge(metricSnapBytes, float64(newest.Bytes))
}

// sampler keeps what is looked up so that it is not looked up too often.
type sampler struct {
	sampling sync.Mutex
	Counted  tallies

	lookedAt    time.Time // when streams were asked
	ends        StreamEnds
	known       bool
	target      uint64 // an end of the log that was not folded when it was seen
	targetSince time.Time
}

// tallies are the counts of all collections at a moment.
type tallies struct {
	DocumentCounts
	at   time.Time
	Took time.Duration
	ok   bool
}

// CountShare is what part of the time documents are counted at most.
const CountShare = 50

// collectDocuments sends the counts of documents, if need be those of a while
// ago.
func (m *Monitor) collectDocuments(s sending, from Source) {
	m.sampling.Lock()
	defer m.sampling.Unlock()
	if n := &m.Counted; !n.ok || time.Since(n.at) >= CountShare*n.Took {
		n.at = time.Now()
		counts, err := from.CountDocuments()
		n.DocumentCounts, n.ok, n.Took = counts, err == nil, time.Since(n.at)
	}
	if !m.Counted.ok {
		return
	}
	s.gauge(metricNumber, float64(m.Counted.Collections))
	s.gauge(metricDocuments, float64(m.Counted.Documents))
	s.gauge(metricBytes, float64(m.Counted.Bytes))
	s.gauge(metricPending, float64(m.Counted.Pending))
	s.gauge(metricOverdue, float64(m.Counted.Overdue))
}

const (
	// endsTimeout bounds what collecting waits for NATS.
	endsTimeout = time.Second
	// endsFor is how long an answer does.
	endsFor = time.Second
)

// collectLog sends how the projection stands to the log.
func (m *Monitor) collectLog(s sending, from Source, now *Sample) {
	m.sampling.Lock()
	defer m.sampling.Unlock()
	if time.Since(m.lookedAt) >= endsFor {
		ctx, cancel := context.WithTimeout(context.Background(), endsTimeout)
		ends, err := from.Ends(ctx)
		cancel()
		m.ends, m.known = ends, err == nil
		m.lookedAt = time.Now()
	}
	cursor := &now.Cursor
	s.gauge(metricFolded, float64(cursor.Seq))
	s.gauge(metricTime, float64(cursor.Time)/1000)
	s.count(metricForeign, cursor.Foreign)
	s.count(metricAppended, now.Appended)
	if m.known {
		s.gauge(metricEnd, float64(m.ends.Last))
		s.gauge(metricFirst, float64(m.ends.First))
		s.gauge(metricLag, float64(m.ends.Last-min(cursor.Seq, m.ends.Last)))
		s.gauge(metricBehind, float64(m.ends.Behind))
	}
	s.gauge(metricLagTime, m.behind(cursor.Seq).Seconds())
}

// behind returns for how long an end of the log that was seen is not folded.
func (m *Monitor) behind(folded uint64) time.Duration {
	if folded >= m.target {
		m.target = 0
		if m.known && m.ends.Last > folded {
			m.target, m.targetSince = m.ends.Last, m.lookedAt
		}
	}
	if m.target == 0 {
		return 0
	}
	return time.Since(m.targetSince)
}
