package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkTouch touches documents of 500 bytes, against upserts of 20 bytes, and against
// gets if they are too young to be renewed.
func BenchmarkTouch(b *testing.B) {
	l := startLapse(b, processor.OS)
	load(b, l.create(b, "sessions", client.DefaultTTL(time.Hour)), 0, upserted, func(n int) []byte { return sizedDocument(n, 500, "") })
	l.create(b, "small", client.DefaultTTL(time.Hour))
	conns := versus.Connections(b, l.URL(), connections)
	ask := func(b *testing.B, callers int, op, collection, body string) versus.Side {
		return (&versus.Callers{N: callers, For: roundTime, Process: l.PID(), Do: func(caller, n int) error {
			_, err := request(conns[caller%connections], subject(op, collection, versus.Spread(n, upserted)), []byte(body), written)
			return err
		}}).Round(b)
	}
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			versus.Run(b, fmt.Sprintf("`touch` by request, 500 bytes, %s, `os`", countCallers(callers)), ask(b, callers, "touch", "sessions", ""),
				versus.Peer{Name: "lapse, `upsert` of 20 bytes", Goal: versus.AtLeast(1), Round: ask(b, callers, "upsert", "small", `{"visits":123456789}`)})
		})
	}
	b.Run("young", func(b *testing.B) {
		versus.Run(b, "`touch` with `content` that renews nothing, 500 bytes, 64 callers", ask(b, 64, "touch", "sessions", `{"minAge":3600,"content":true}`),
			versus.Peer{Name: "lapse, `get`", Goal: versus.AtLeast(0.9), Round: ask(b, 64, "get", "sessions", "")})
	})
}
