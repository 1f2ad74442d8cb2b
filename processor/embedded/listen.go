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

// ErrListenAddress means that Options.Listen is not an address.
var ErrListenAddress = errors.New("give --listen HOST:PORT, such as 127.0.0.1:4222")

// splitListen takes HOST:PORT apart. An empty host is every interface.
func splitListen(listen string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(listen)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || port < -1 || port > 65535 {
		return "", 0, fmt.Errorf("cannot listen on %q: %w", listen, ErrListenAddress)
	}
	if port <= 0 {
		return host, server.RANDOM_PORT, nil
	}
	// A start takes a while and writes to the store, so check the port first.
	// startError reports a port that is taken in between.
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", 0, listenError(listen, err)
	}
	return host, port, l.Close()
}

func listenError(listen string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cannot listen on %s: another program has this port; stop it or choose another one with --listen", listen)
	}
	return fmt.Errorf("cannot listen on %s: %w; choose another address with --listen", listen, err)
}

// lockStore makes the directories and takes the lock.
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

// startError explains the server's fatal error to the operator.
func startError(o *Options, why string) error {
	if strings.HasPrefix(why, "Error listening on port") {
		return listenError(o.Listen, errors.New(why))
	}
	return fmt.Errorf("cannot start the NATS server in %s: %s", o.StoreDir, why)
}
