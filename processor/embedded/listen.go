package embedded

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats-server/v2/server"
)

// splitListen takes HOST:PORT apart. An empty host is every interface; ports 0 and -1 are
// any free one, as NATS writes it.
func splitListen(listen string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(listen)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || port < -1 || port > 65535 {
		return "", 0, &ConfigError{fmt.Sprintf("cannot listen on %q: give --listen HOST:PORT, such as 127.0.0.1:4222", listen)}
	}
	if port <= 0 {
		return host, server.RANDOM_PORT, nil
	}
	return host, port, nil
}

// checkPort returns an error if a port is taken: a start takes a while and writes to the
// store. startError reports a port that is taken in between.
func checkPort(listen string) error {
	if _, port, err := splitListen(listen); err != nil || port == server.RANDOM_PORT {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return listenError(listen, err)
	}
	return l.Close()
}

// Loopback reports whether only programs on this machine can connect to address, a
// HOST:PORT. A host name other than localhost may mean any interface.
func Loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func listenError(listen string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cannot listen on %s: another program has this port; stop it or choose another one with --listen", listen)
	}
	return fmt.Errorf("cannot listen on %s: %w; choose another address with --listen", listen, err)
}

// lockStore makes the directories and takes the lock. The order counts: nothing below a
// store that another process uses is touched.
func lockStore(dir string) (io.Closer, error) {
	lock, err := LockStore(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, server.JetStreamStoreDir), 0o750); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make the store directory %s: %w; choose another one with --store-dir", dir, err), lock.Close())
	}
	return lock, nil
}

// LockStore creates a store directory and takes its lock, which one process at a time
// can hold. The lock ends with the process, however that ends.
func LockStore(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("cannot make the store directory %s: %w; choose another one with --store-dir", dir, err)
	}
	l, err := vfs.Default.Lock(filepath.Join(dir, "lock"))
	var file *os.PathError
	switch {
	case err == nil:
		return l, nil
	case errors.As(err, &file): // the file could not be made; the lock was not tried
		return nil, fmt.Errorf("cannot write to the store directory %s: %w; choose another one with --store-dir", dir, err)
	default:
		return nil, fmt.Errorf("another process uses the store directory %s: stop it or choose another one with --store-dir (%w)", dir, err)
	}
}

// startError explains the server's fatal error to the operator. NATS has it as text only.
func startError(o *Options, why string) error {
	if strings.HasPrefix(why, "Error listening on port") {
		return listenError(o.Listen, errors.New(why))
	}
	return fmt.Errorf("cannot start the NATS server in %s: %s", o.StoreDir, why)
}
