package bench

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// redisPeer is a Redis server with an append-only file on disk, in a process of
// its own.
type redisPeer struct {
	PID    int
	client *redis.Client
	// pipeline coalesces concurrent commands of callers, as nats.go does: with 64
	// callers that is three times as fast as a connection each. A single caller is
	// faster without.
	pipeline *redis.AutoPipeliner
}

// startRedis starts the redis-server on the PATH, until the end of the benchmark. If
// there is none, it logs that and returns nil. The append-only file is synced before each
// acknowledgement with fsync, else once a second.
func startRedis(b *testing.B, fsync bool) *redisPeer {
	b.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		b.Log("not beside Redis: there is no redis-server on the PATH")
		return nil
	}
	sync := "everysec"
	if fsync {
		sync = "always"
	}
	address := harness.FreeAddr(b)
	_, port, _ := net.SplitHostPort(address)
	dir := b.TempDir()
	logFile, err := os.Create(filepath.Join(dir, "redis.log"))
	check(b, err)
	defer logFile.Close() // the process has its own descriptor
	cmd := child.Command(b, binary, "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", sync, "--save", "")
	cmd.Stdout, cmd.Stderr = logFile, logFile
	check(b, cmd.Start())
	client := redis.NewClient(&redis.Options{
		Addr: address, ReadTimeout: timeout, WriteTimeout: timeout,
		MaxRetries: -1, // an error ends the benchmark
	})
	b.Cleanup(func() {
		_ = client.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := client.Ping(context.Background()).Err()
		if err == nil {
			break
		}
		if time.Since(began) > timeout {
			text, _ := os.ReadFile(logFile.Name())
			b.Fatalf("redis-server is not ready: %v\n%s", err, text)
		}
	}
	pipeline, err := client.AutoPipeline()
	check(b, err)
	return &redisPeer{cmd.Process.Pid, client, pipeline}
}

// by returns the client for this number of concurrent callers.
func (r *redisPeer) by(callers int) redis.StringCmdable {
	if callers == 1 {
		return r.client
	}
	return r.pipeline
}

// put stores document n with the TTL of the collections in these benchmarks.
func (r *redisPeer) put(callers, n int) error {
	return r.by(callers).Set(context.Background(), versus.ID(n), versus.Document(n), time.Hour).Err()
}

// get reads document n and fails if it does not exist.
func (r *redisPeer) get(callers, n int) error {
	return r.by(callers).Get(context.Background(), versus.ID(n)).Err()
}
