package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress: a bar appears on a terminal when the work has taken longer than the
// delay, and is removed at the end.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, took := range []time.Duration{0, 2 * time.Second} {
			var shown bytes.Buffer
			p := showProgress(&shown, "events", 1000, time.Second)
			time.Sleep(took)
			var adding sync.WaitGroup
			for range 4 {
				adding.Go(func() {
					for range 200 {
						p.Add(1)
					}
				})
			}
			adding.Wait()
			time.Sleep(took)
			p.Done()
			text := shown.String()
			p.Done()
			if again := shown.String(); again != text {
				t.Errorf("a second call writes %q", again[len(text):])
			}
			if took == 0 && text != "" {
				t.Errorf("shown at once: %q", text)
			}
			if took > 0 && (!strings.Contains(text, "events") || !strings.Contains(text, "80.0") || !strings.HasSuffix(text, "\x1b[K")) {
				t.Errorf("shown: %q", text)
			}
		}
		var shown bytes.Buffer
		p := newProgress(&shown, "no terminal", 0)
		p.Add(1)
		p.Set(2)
		time.Sleep(time.Minute)
		p.Done()
		if shown.Len() > 0 {
			t.Errorf("shown where there is no terminal: %q", shown.String())
		}
	})
}
