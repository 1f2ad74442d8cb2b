package blocks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

const (
	stream = "LAPSE_main"
	events = "lapse.main.events."
)

// store is a stream of a NATS server.
type store struct {
	t    *testing.T
	dir  string // of the server
	ns   *server.Server
	nc   *nats.Conn
	js   jetstream.JetStream
	sent [][]byte // bodies, from sequence 1
}

func newStore(t *testing.T) *store {
	s := &store{t: t, dir: t.TempDir()}
	s.start()
	_, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{"lapse.main.append.secret.>"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "lapse.main.append.secret.>", Destination: events + ">"}, DenyDelete: true})
	s.check(err)
	return s
}

func (s *store) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) start() {
	s.t.Helper()
	var err error
	s.ns, err = server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: s.dir, NoSigs: true, NoLog: true, MaxPayload: 4 << 20})
	s.check(err)
	s.ns.Start()
	s.nc, err = nats.Connect("", nats.InProcessServer(s.ns))
	s.check(err)
	s.js, err = jetstream.New(s.nc)
	s.check(err)
}

func (s *store) stop() {
	s.nc.Close()
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

func (s *store) append(tail string, body []byte) {
	s.t.Helper()
	m := nats.NewMsg("lapse.main.append.secret." + tail)
	m.Data = body
	m.Header.Set("Lapse-Time", "1431857105000")
	m.Header.Set("Lapse-Cause", fmt.Sprintf("mutations/%d", len(s.sent)+1))
	_, err := s.js.PublishMsg(s.t.Context(), m)
	s.check(err)
	s.sent = append(s.sent, body)
}

// fill appends n events, a third of them large, so that they need several files.
func (s *store) fill(random *rand.Rand, n int) {
	for range n {
		size := random.IntN(1000)
		if random.IntN(3) == 0 {
			size = random.IntN(900_000)
		}
		s.append("c.DocumentCreated", randomBytes(random, size))
	}
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func (s *store) trim(first int) {
	s.t.Helper()
	s.append("_.LogTrimmed", fmt.Appendf(nil, `{"first":%d}`, first))
	stream, err := s.js.Stream(s.t.Context(), stream)
	s.check(err)
	s.check(stream.Purge(s.t.Context(), jetstream.WithPurgeSequence(uint64(first))))
}

func streamDir(dir string) string {
	return filepath.Join(dir, "jetstream", server.DEFAULT_GLOBAL_ACCOUNT, "streams", stream)
}

// copyTo copies the store as a kill would leave it.
func (s *store) copyTo(dir string) {
	s.t.Helper()
	s.check(os.RemoveAll(dir))
	s.check(os.CopyFS(dir, os.DirFS(s.dir)))
}

func blockFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(streamDir(dir), "msgs", "*.blk"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	return names
}

// damages are what disks, and operators who restore files, do to a file.
var damages = map[string]func(random *rand.Rand, b []byte) []byte{
	"bit": func(random *rand.Rand, b []byte) []byte {
		b[random.IntN(len(b))] ^= 1 << random.IntN(8)
		return b
	},
	"zeros": func(random *rand.Rand, b []byte) []byte {
		at := random.IntN(len(b))
		clear(b[at:min(at+4096, len(b))])
		return b
	},
	"noise": func(random *rand.Rand, b []byte) []byte {
		at := random.IntN(len(b))
		copy(b[at:], randomBytes(random, 1+random.IntN(5000)))
		return b
	},
	"cut":   func(random *rand.Rand, b []byte) []byte { return b[:random.IntN(len(b))] },
	"empty": func(_ *rand.Rand, b []byte) []byte { return nil },
	"gone":  nil,
}

// TestCheckFindsDamage damages one file of a log whose last sequence is known, after a clean stop
// and after a kill. Check reports no log as whole that is not, and changes nothing.
func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	random := stress.Rand(t)
	s := newStore(t)
	s.fill(random, 30)
	if random.IntN(2) == 0 {
		s.trim(5 + random.IntN(20))
	}
	s.fill(random, 40+random.IntN(30))
	first := firstOf(s)
	killed, stopped := t.TempDir(), t.TempDir()
	s.copyTo(killed)
	s.stop()
	s.copyTo(stopped)
	for _, dir := range []string{killed, stopped} {
		found, err := Check(streamDir(dir), events, nil)
		if err != nil || found.Last != uint64(len(s.sent)) || found.Judged != uint64(len(s.sent)) || dir == stopped && found.Indexed != found.Last || found.Torn != "" {
			t.Fatalf("what is whole is %+v, %v; it has %d", found, err, len(s.sent))
		}
	}
	outcomes := make(map[string]int)
	for range stress.Pick(60, 2000) {
		dir := []string{killed, stopped}[random.IntN(2)]
		names := blockFiles(t, dir)
		name := names[random.IntN(len(names))]
		kind := slices.Sorted(maps.Keys(damages))[random.IntN(len(damages))]
		before, err := os.ReadFile(name)
		s.check(err)
		if damage := damages[kind]; damage == nil {
			s.check(os.Remove(name))
		} else if len(before) > 0 {
			s.check(os.WriteFile(name, damage(random, bytes.Clone(before)), 0o600))
		}
		then := harness.Files(t, dir)
		found, err := Check(streamDir(dir), events, nil)
		if now := harness.Files(t, dir); !maps.Equal(then, now) {
			t.Fatalf("%s: looking changed the files", kind)
		}
		what := fmt.Sprintf("%s in %s of %d files, stopped %t", kind, filepath.Base(name), len(names), dir == stopped)
		var damage *Damage
		switch {
		case errors.As(err, &damage):
			outcomes[kind+": refused"]++
		case err != nil:
			t.Fatalf("%s: %v", what, err)
		case found.Last < uint64(len(s.sent)):
			outcomes[kind+": shorter"]++
			if name != names[len(names)-1] {
				t.Fatalf("%s: it is only shorter: %+v", what, found)
			}
		default:
			outcomes[kind+": whole"]++
			copied := &store{t: t, dir: t.TempDir(), sent: s.sent}
			s.check(os.CopyFS(copied.dir, os.DirFS(dir)))
			copied.start()
			copied.holds(what, first)
			copied.stop()
		}
		s.check(os.WriteFile(name, before, 0o600))
	}
	t.Log(outcomes)
}

func firstOf(s *store) uint64 {
	info, err := s.js.Stream(s.t.Context(), stream)
	s.check(err)
	return info.CachedInfo().State.FirstSeq
}

// holds fails the test unless all events that were sent can be read.
func (s *store) holds(what string, first uint64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	stream, err := s.js.Stream(ctx, stream)
	s.check(err)
	for seq := first; seq <= uint64(len(s.sent)); seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil || !bytes.Equal(m.Data, s.sent[seq-1]) {
			s.t.Fatalf("%s: it is reported whole, and event %d is not what it was (%v)", what, seq, err)
		}
	}
}
