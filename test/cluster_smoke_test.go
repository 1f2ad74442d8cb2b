package test
import ("testing";"time";"github.com/nats-io/nats.go";"github.com/lapsedb/lapse/test/harness";"github.com/lapsedb/lapse/test/stress")
func TestSmoke(t *testing.T) {
	s := harness.Serve(t)
	for i := range 2 {
	x := startTraffic(t, []string{"r0","r1"}[i], stress.Rand(t), func(int) *nats.Conn { return dial(t, s) })
	for range 4 { time.Sleep(2*time.Second); s.Kill(); time.Sleep(time.Second); s.Restart() }
	x.stop()
	time.Sleep(4*time.Second)
	log := wholeLog(t, dial(t, s))
	checkLog(t, log)
	b:=time.Now()
	x.verify(log)
	t.Log(time.Since(b))
	}
}
