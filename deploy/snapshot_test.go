package deploy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/harness"
)

// TestLargeSnapshot: with the rights of lapse in the cluster, it makes and reads back a
// snapshot larger than NATS sends a reader without flow control.
func TestLargeSnapshot(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	contexts(t, c.urls)
	s := harness.Serve(t, serveArgs(c.urls)...)
	eventually(t, "it writes", func() bool { return writes(s) })
	done(t, "client", "collection", "create", "orders")
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 1<<20)
	nc := c.connect(t, "client")
	for n := range 24 {
		for i := range noise {
			noise[i] = byte('0' + random.IntN(75))
		}
		body := fmt.Appendf(nil, `{"noise":%s}`, quoted(t, noise))
		// A busy machine may lose a connection, or the lease, meanwhile.
		eventually(t, "a large document", func() bool {
			m, err := nc.Request(fmt.Sprintf("lapse.main.api.document.upsert.orders.d%d", n), body, 5*time.Second)
			return err == nil && slices.Contains([]string{"201", "200"}, m.Header.Get("Lapse-Status")) // 200 if it was stored, and the reply lost
		})
	}
	var made string
	eventually(t, "a snapshot", func() bool {
		r := as(t, "client", "snapshot", "create")
		made = r.Stdout
		return r.Code == 0
	})
	var snapshot struct {
		Seq   uint64 `json:"seq"`
		Bytes uint64 `json:"bytes"`
		Sound bool   `json:"sound"`
	}
	if err := json.Unmarshal([]byte(made), &snapshot); err != nil || !snapshot.Sound || snapshot.Bytes < 16<<20 {
		t.Fatalf("made %s %v", made, err)
	}
	eventually(t, "it is read back", func() bool {
		r := as(t, "client", "snapshot", "verify", fmt.Sprint(snapshot.Seq))
		return r.Code == 0 && strings.Contains(r.Stdout, `"sound":true`)
	})
}

func quoted(t *testing.T, text []byte) []byte {
	b, err := json.Marshal(string(text))
	check(t, err)
	return b
}
