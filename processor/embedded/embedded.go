package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/lapsedb/lapse/processor/embedded/blocks"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
)

// A start, in order, and what each step protects:
//
//   - the options and the port are checked: a mistake costs nothing;
//   - the lock: one process at a time uses the store;
//   - what an earlier process has put into quarantine goes back, and is judged again;
//   - a restore or deletion that was interrupted keeps its database out (checkChanges);
//   - the files of the streams are read (check.go), before NATS may change them;
//   - there is room for a batch that NATS has to complete (room.go);
//   - NATS starts and reads the streams back;
//   - the replies between the accounts are open (openReplies), the gate, and the watch.
//
// Each step adds what ends it to closers, which Shutdown calls in reverse: the watch, the
// gate and its connections, NATS, the background check, the memory, the quarantine, the
// lock. So the lock is held until NATS has written everything.

// maxPayload is the largest message, in bytes: a document of 2 MiB, its JSON envelope, and
// its last content beside it.
const maxPayload = 4 << 20

// maxPending limits the bytes pending for one client before it is cut off: many replies
// of the largest size, for which NATS' own 64 MiB are not enough.
const maxPending = 640 << 20

// maxMemory bounds JetStream's memory storage. lapse stores nothing there, but a
// consumer's state may be there.
const maxMemory = 256 << 20

// unlimited is a limit of bytes that no machine reaches: NATS has no word for none.
const unlimited = 1 << 50

// AtomicBatch limits the messages of an atomic batch. A batch costs the server 2 ms
// besides its messages.
const AtomicBatch = 4096

// startTimeout limits a start. Most of it is reading back the streams, which takes
// seconds for a hundred gigabytes.
const startTimeout = 5 * time.Minute

// endTimeout limits the shutdown of a server that did not start.
const endTimeout = 10 * time.Second

// Options say what to start. StoreDir and Databases are required.
type Options struct {
	// StoreDir is created if missing. JetStream is in StoreDir/jetstream;
	// StoreDir/lock is the lock that keeps a second process out.
	//
	// The streams may take three quarters of the disk: of the free space at the start
	// plus their own size. The rest is for the projection. When their share is used
	// up, appends are refused and the streams stay readable.
	StoreDir string

	// Listen is HOST:PORT of the client port, 127.0.0.1:4222 when empty. Port
	// 0 or -1 takes any free one.
	Listen string

	// NoAuth accepts that others than this machine connect without credentials, to Listen
	// and to what Config opens.
	NoAuth bool

	// Config is a NATS configuration file with accounts, users, TLS, leaf nodes, WebSocket
	// and monitoring, "" for none. Once it has users, clients have to log in.
	Config string

	// Users are users of the clients' account: once there are any, clients have to log in.
	// Their files are read at the start and by Reload.
	Users []User

	// CertFile and KeyFile have the certificate for TLS at Listen, and its key; "" for none.
	// They are read at the start and by Reload.
	CertFile, KeyFile string

	// NoTLS accepts that passwords reach Listen over networks without TLS.
	NoTLS bool

	// Operator is the public nkey of a user who may back up, repair and restore the
	// streams; "" for none.
	Operator string

	// Memory keeps all streams in memory. The databases come and go, see AddDatabase, and
	// Databases is gate.AnyDatabase.
	Memory bool

	// Databases are those that clients may reach. With more than one, the others
	// start despite a damaged log: see Damage.
	Databases []schema.DatabaseName

	// SyncAlways makes JetStream sync every write to disk before it acknowledges it.
	// Otherwise it syncs every two minutes: acknowledged writes survive the process,
	// not a power cut.
	SyncAlways bool

	// AcceptLostEnd accepts a log that is shorter than it is known to have been, and
	// truncates it at damage in its last file. Without it Start refuses both; without
	// SyncAlways, when a power cut may take the end, only damage.
	AcceptLostEnd bool

	// Known returns how far the log of a database, whose stream listens below prefix,
	// is known to have gone. It may be nil.
	Known func(db schema.DatabaseName, prefix string) eventlog.Extent

	// Unchecked opens the streams without checking their files, to begin a new log.
	Unchecked bool

	// Changing is the database that is restored: Start opens it also if an earlier restore of
	// it was interrupted.
	Changing schema.DatabaseName

	// Unread is the most bytes that clients have not read, all together: the client with
	// most of them is then disconnected. 160 MiB if 0.
	Unread int64

	// Logger gets the server's warnings and errors; nil discards them.
	Logger *slog.Logger
}

// EnsureDefaults fills in what was left out.
func (o *Options) EnsureDefaults() {
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:4222")
	o.Unread = cmp.Or(o.Unread, maxUnread)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
}

// Server is a running NATS server. Its methods may be called from any
// goroutine.
type Server struct {
	nats       *server.Server
	address    string // HOST:PORT at which clients connect
	url        string
	users      bool // clients have to log in, since the start
	options    Options
	configured func() (*server.Options, error) // reads Options.Config
	who        credentials
	log        *slog.Logger
	memory     memory
	quarantine *quarantine
	gate       *gate.Gate
	closers    []func() // for Shutdown, which calls the last one first
	stop       sync.Once

	failed chan error
	// interrupted is set once the streams refuse writes, perhaps within a batch.
	interrupted atomic.Bool
}

// Start starts a server and returns when it serves clients and its streams are read back.
// An error is one line that says what to do; everything is closed then, unless that takes
// longer than endTimeout. The caller calls Shutdown.
func Start(o Options) (*Server, error) {
	o.EnsureDefaults()
	if o.StoreDir == "" || len(o.Databases) == 0 {
		return nil, errors.New("embedded: store directory and databases must be given")
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := checkPort(o.Listen); err != nil {
		return nil, err
	}
	lock, err := lockStore(o.StoreDir)
	if err != nil {
		return nil, err
	}
	quarantine := &quarantine{storeDir: o.StoreDir, of: make(map[schema.DatabaseName]error)}
	known := blocks.OpenKnown(filepath.Join(o.StoreDir, "checked"))
	err = quarantine.putBack()
	if err == nil {
		err = o.checkChanges(quarantine)
	}
	if err == nil && !o.Unchecked {
		err = o.checkFiles(quarantine, known)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := &Server{options: o, who: newCredentials(), log: o.Logger, quarantine: quarantine, failed: make(chan error, 1)}
	checking, end := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { o.keepChecked(checking, known) })
	s.closers = []func(){
		func() { _ = lock.Close() },
		func() { _ = quarantine.putBack() }, // else the next start does
		s.leaveMemory,
		func() { end(); ended.Wait() },
	}
	if err := s.start(&o); err != nil {
		// A shutdown that hangs must not hold back the error.
		ended := make(chan struct{})
		go func() { defer close(ended); s.Shutdown() }()
		select {
		case <-ended:
		case <-time.After(endTimeout):
		}
		return nil, err
	}
	return s, nil
}

// start configures NATS and starts it. A fatal error of NATS comes through its logger:
// Start of package server does not return one.
func (s *Server) start(o *Options) error {
	room, err := o.room()
	if err != nil {
		return err
	}
	s.configured = func() (*server.Options, error) {
		so, _, err := o.forNATS(s.who, room)
		return so, err
	}
	so, err := s.configured()
	if err != nil {
		return err
	}
	ns, err := server.NewServer(so)
	if err != nil {
		return fmt.Errorf("cannot set up the NATS server: %w", err)
	}
	fatal := make(chan string, 1)
	ns.SetLogger(&logger{to: o.Logger, fatal: fatal, failed: func(why string) { s.fail(o.StoreDir, why) }}, false, false)
	s.nats = ns
	s.closers = append(s.closers, func() { ns.Shutdown(); ns.WaitForShutdown() })

	// NATS reads what an earlier process left in memory: no other start may remove it.
	memory := memoryPath(o.StoreDir)
	lock := lockDir(memory)
	defer lock.Close()

	// Start returns early on a fatal error, after it has logged it. Otherwise it
	// returns when the streams are read back and clients are accepted.
	done := make(chan struct{})
	go func() { ns.Start(); close(done) }()
	select {
	case <-done:
	case <-time.After(startTimeout):
		return fmt.Errorf("the NATS server is still reading back its streams after %s: "+
			"look for a slow or failing disk below %s", startTimeout, o.StoreDir)
	}
	select {
	case why := <-fatal:
		return startError(o, why)
	default:
	}
	if !ns.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("the NATS server accepts no connections on %s after 10 s: try another --listen", o.Listen)
	}
	s.address, s.url = ns.Addr().String(), clientURL(ns.Addr())
	s.users = so.NoAuthUser == ""
	if so.TLSConfig != nil {
		s.url = "tls" + strings.TrimPrefix(s.url, "nats")
	}
	if err := s.openReplies(); err != nil {
		return err
	}
	lock.Close()
	removeLeftovers(memory)
	if o.SyncAlways {
		s.memory = openMemory(memory)
	}
	if err := s.openGate(o); err != nil {
		return err
	}
	s.closers = append(s.closers, s.startWatch())
	return nil
}

// AddDatabase lets clients read the log of a database, if Options.Memory is set.
func (s *Server) AddDatabase(db schema.DatabaseName) { s.gate.Add(db) }

// RemoveDatabase ends what AddDatabase began.
func (s *Server) RemoveDatabase(db schema.DatabaseName) { s.gate.Remove(db) }

// Damage returns why the log of a database, or its mutations, were not opened, nil if
// they were. Only a server of several databases starts with damage.
func (s *Server) Damage(db schema.DatabaseName) error { return s.quarantine.of[db] }

// URL returns the address for clients, with a host that they can dial.
func (s *Server) URL() string { return s.url }

// Address returns HOST:PORT at which the server listens. The host may stand for every
// interface, as in [::]:4222.
func (s *Server) Address() string { return s.address }

// HasUsers reports whether clients had to log in when the server started.
func (s *Server) HasUsers() bool { return s.users }

// fail keeps the first failure. The streams are read-only from then on, until a restart,
// and what NATS was writing may lie in memory (leaveMemory).
func (s *Server) fail(dir, why string) {
	s.interrupted.Store(true)
	select {
	case s.failed <- writeError(dir, why):
	default:
	}
}

// writeError says that the streams refuse writes, and what to do.
func writeError(dir, why string) error {
	advice := "see what is wrong with the disk"
	if strings.Contains(why, syscall.ENOSPC.Error()) || strings.Contains(why, syscall.EDQUOT.Error()) || strings.Contains(why, resourceLimits) {
		advice = "free some space"
	}
	return fmt.Errorf("JetStream cannot write below %s any more (%s): %s and start again", dir, why, advice)
}

// Failed receives an error, one line that says what to do, when the streams refuse
// writes, as on a full disk. They accept them again after a restart on a sound disk.
func (s *Server) Failed() <-chan error { return s.failed }

// Shutdown ends the server and blocks until everything is on disk. The caller closes
// the connections made by ConnectLog and ConnectService before.
func (s *Server) Shutdown() {
	s.stop.Do(func() {
		for _, end := range slices.Backward(s.closers) {
			end()
		}
	})
}

// leaveMemory removes the directory in memory, unless the next start has to complete what
// is in it: after a failed write NATS completes a staged batch from there.
func (s *Server) leaveMemory() {
	if s.interrupted.Load() {
		s.memory.lock.Close()
	} else {
		s.memory.remove()
	}
}

// clientURL returns a URL for a listening address. The address of all interfaces cannot
// be dialled everywhere, so the loopback address replaces it.
func clientURL(a net.Addr) string {
	t := a.(*net.TCPAddr)
	host := t.IP.String()
	if t.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "nats://" + net.JoinHostPort(host, strconv.Itoa(t.Port))
}
