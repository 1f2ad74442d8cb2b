package test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/cluster"
	"github.com/lapsedb/lapse/test/stress"
)

// fault is a fault of a scene. do returns when the fault is over and writes succeed
// again.
type fault struct {
	name string
	do   func(s *scene) time.Time // returns the moment from which writes must succeed
	most time.Duration            // longest gap in writes by the contract; 0 if it sets none
	nats bool                     // a node of NATS may be silent
}

// allowance multiplies the limits of a long run, for slow machines.
const allowance = 5

// Longest gap in reads: until the client turns to another processor, or until the
// processors have noticed that a node is silent, to which all of them may be connected.
const (
	unread     = time.Second
	unreadNATS = 3 * time.Second
)

// awayNATS bounds every gap in a short run, and one in writes without a NATS leader: NATS
// elects one within about 10 s, and lapse asks again for the lease after that.
const awayNATS = 45 * time.Second

var faults = []fault{
	{"the writer is killed", (*scene).killWriter, 2 * lease, false},
	{"the writer is killed and starts at once", (*scene).restartWriter, 2 * lease, false},
	{"the writer is asked to end", (*scene).endWriter, time.Second, false},
	{"the writer is frozen", (*scene).freezeWriter, 2 * lease, false},
	{"the writer is cut off from NATS", (*scene).cutWriter, 2 * lease, false},
	{"all restart at once", (*scene).restartAll, 5 * time.Second, false},
	{"a standby begins again", (*scene).newStandby, time.Second, false},
	{"the leader of the log is killed", (*scene).killLeader, 0, true},
	{"the writer and the leader of the log are killed", (*scene).killBoth, 0, true},
	{"the writer is with a node of NATS that is partitioned", (*scene).partitionWriter, 0, true},
	{"all of NATS is killed", (*scene).killNATS, 0, true},
	{"a node of NATS is frozen", (*scene).freezeNode, 0, true},
	{"the node of NATS is frozen that all are connected to", (*scene).freezeTheirs, 0, true},
	{"a node of NATS is partitioned", (*scene).partition, 0, true},
	{"the lease bucket is deleted", (*scene).deleteLease, 0, false},
}

// inflict causes a fault and measures the gaps in reads and writes.
func (s *scene) inflict(f fault) {
	s.t.Helper()
	s.note("%s", f.name)
	began := time.Now()
	s.writes.after(s.t, f.do(s))
	s.reads.after(s.t, time.Now())
	writes, reads := awayNATS, awayNATS
	if stress.Long() { // the tests beside a short run delay replies and silence nodes
		if reads = allowance * unread; f.nats {
			reads = allowance * unreadNATS
		}
		if f.most > 0 {
			writes = allowance * f.most
		}
	}
	s.checkAway(f, s.writes, began, writes)
	s.checkAway(f, s.reads, began, reads)
	s.nats.WaitWell()
	s.waitRoles()
}

// checkAway checks the longest gap in beats of all clients since a fault began.
func (s *scene) checkAway(f fault, b *beats, began time.Time, most time.Duration) {
	s.t.Helper()
	away, since := b.longest(began)
	s.note("%s: %s are away for %s since %s", f.name, b.what, away.Round(time.Millisecond), since.UTC().Format("05.000"))
	if away > most {
		s.t.Errorf("%s, and %s are away for %s", f.name, b.what, away)
	}
}

// remove removes the projection of a processor that is down.
func (s *scene) remove(p *lapse) {
	s.t.Helper()
	check(s.t, os.RemoveAll(filepath.Join(p.Dir, "projection")))
}

func (s *scene) killWriter() time.Time {
	w := s.writer()
	w.Kill()
	killed := time.Now()
	s.writes.after(s.t, killed)
	if s.random.IntN(3) == 0 {
		s.remove(w)
	}
	w.Restart()
	return killed
}

func (s *scene) restartWriter() time.Time {
	w := s.writer()
	w.Kill()
	killed := time.Now()
	w.Restart()
	return killed
}

func (s *scene) endWriter() time.Time {
	w := s.writer()
	took := w.Stop()
	ended := time.Now()
	s.note("%s ended within %s", w.name, took.Round(time.Millisecond))
	s.writes.after(s.t, ended)
	w.Restart()
	return ended
}

// restartAll restarts all processors, as an upgrade or docker compose restart does.
func (s *scene) restartAll() time.Time {
	for _, p := range s.processors {
		p.Signal(syscall.SIGTERM)
	}
	for _, p := range s.processors {
		<-p.Ended()
	}
	ended := time.Now()
	for _, p := range s.processors {
		p.Restart()
	}
	return ended
}

func (s *scene) freezeWriter() time.Time {
	w := s.writer()
	w.Freeze()
	frozen := time.Now()
	s.writes.after(s.t, frozen)
	time.Sleep(time.Until(frozen.Add(stress.Pick(2*lease+lease/2, 30*time.Second))))
	w.Signal(syscall.SIGCONT)
	return frozen
}

func (s *scene) cutWriter() time.Time {
	w, how := s.writer(), s.bad()
	s.note("%s is %s", w.name, how)
	w.access.Set(how)
	cut := time.Now()
	s.writes.after(s.t, cut)
	time.Sleep(time.Until(cut.Add(2*lease + lease/2)))
	w.access.Set(cluster.Open)
	return cut
}

// bad returns a random way for a gate to fail.
func (s *scene) bad() cluster.State {
	return []cluster.State{cluster.Closed, cluster.Stalled}[s.random.IntN(2)]
}

func (s *scene) newStandby() time.Time {
	p := s.standby()
	p.Kill()
	s.remove(p)
	p.Restart()
	return time.Now()
}

// leader returns the node that leads one of the streams, mostly the log.
func (s *scene) leader() (node int) {
	s.t.Helper()
	stream := "LAPSE_main"
	if all := s.streams(); s.random.IntN(3) == 0 {
		stream = all[s.random.IntN(len(all))]
	}
	eventually(s.t, "a leader of "+stream, func() bool { node = s.nats.Leader(s.control, stream); return node >= 0 })
	s.note("%s leads %s", s.nats.Nodes[node].Name, stream)
	return node
}

func (s *scene) killLeader() time.Time {
	return s.without(s.leader(), (*cluster.Node).Kill, (*cluster.Node).Start)
}

// without keeps clients going while a node of NATS is stopped.
func (s *scene) without(node int, stop, begin func(*cluster.Node)) time.Time {
	stop(s.nats.Nodes[node])
	stopped := time.Now()
	s.writes.after(s.t, stopped)
	s.goOn()
	begin(s.nats.Nodes[node])
	return stopped
}

func (s *scene) killBoth() time.Time {
	w, node := s.writer(), s.nats.Nodes[s.leader()]
	node.Kill()
	w.Kill()
	killed := time.Now()
	s.writes.after(s.t, killed)
	node.Start()
	w.Restart()
	return killed
}

// goOn lets clients continue with what is left, longer in a stress run.
func (s *scene) goOn() {
	time.Sleep(lease + time.Duration(s.random.Int64N(int64(stress.Pick(lease, 4*lease)))))
}

func (s *scene) killNATS() time.Time {
	for _, node := range s.nats.Nodes {
		node.Kill()
	}
	time.Sleep(time.Duration(s.random.Int64N(int64(lease))))
	killed := time.Now()
	s.nats.Heal()
	return killed
}

func (s *scene) freezeNode() time.Time {
	return s.without(s.leader(), (*cluster.Node).Freeze, (*cluster.Node).Thaw)
}

func (s *scene) partition() time.Time {
	node, how, clients := s.leader(), s.bad(), s.random.IntN(2) == 0
	s.note("%s is %s, to its clients too: %v", s.nats.Nodes[node].Name, how, clients)
	s.nats.Cut(node, how, clients)
	cut := time.Now()
	s.writes.after(s.t, cut)
	s.goOn()
	s.nats.Heal()
	return cut
}

// freezeTheirs freezes the node of the log's leader, with all processors connected to it.
func (s *scene) freezeTheirs() time.Time {
	node := s.leader()
	for _, p := range s.processors {
		p.setOthers(node, cluster.Closed)
	}
	time.Sleep(lease / 4) // they reconnect to the only open node
	for _, p := range s.processors {
		p.setOthers(node, cluster.Open)
	}
	return s.without(node, (*cluster.Node).Freeze, (*cluster.Node).Thaw)
}

// setOthers sets a processor's gates to all nodes but one.
func (p *lapse) setOthers(node int, to cluster.State) {
	for other := range cluster.Nodes {
		if other != node {
			p.access.SetNode(other, to)
		}
	}
}

// keepOff disconnects all processors but one from a node. A NATS client stays with a node
// that has lost the others, so with all of them there, none could take over.
func (s *scene) keepOff(node int, but *lapse) {
	for _, p := range s.processors {
		if p != but {
			p.access.SetNode(node, cluster.Closed)
		}
	}
	time.Sleep(lease / 4) // they reconnect to the other nodes
}

// partitionWriter partitions the writer and some of the clients, with one node of NATS,
// from the other nodes.
func (s *scene) partitionWriter() time.Time {
	w, node, how := s.writer(), s.random.IntN(cluster.Nodes), s.bad()
	w.setOthers(node, cluster.Closed)
	s.keepOff(node, w)
	s.note("%s is with %s, which is %s", w.name, s.nats.Nodes[node].Name, how)
	s.nats.Cut(node, how, false)
	cut := time.Now()
	s.writes.after(s.t, cut)
	s.goOn()
	s.nats.Heal()
	return cut
}

func (s *scene) deleteLease() time.Time {
	eventually(s.t, "the end of the bucket", func() bool {
		err := s.js.DeleteKeyValue(s.t.Context(), "LAPSE_main_LEASE")
		return err == nil || errors.Is(err, jetstream.ErrBucketNotFound)
	})
	deleted := time.Now()
	s.leaseBucket()
	return deleted
}

// leaseBucket waits until the lease bucket exists and has a lease.
func (s *scene) leaseBucket() {
	s.t.Helper()
	eventually(s.t, "a lease", func() bool {
		kv, err := s.js.KeyValue(s.t.Context(), "LAPSE_main_LEASE")
		if err == nil {
			_, err = kv.Get(s.t.Context(), "writer")
		}
		return err == nil
	})
}
