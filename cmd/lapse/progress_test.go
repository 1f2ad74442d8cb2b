package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var late, shown bytes.Buffer
	for _, test := range []struct {
		w     *bytes.Buffer
		delay time.Duration
	}{{&late, time.Hour}, {&shown, 0}} {
		p := showProgress(test.w, "events", 1000, test.delay)
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for range 200 {
					p.Add(1)
				}
			})
		}
		wait.Wait()
		time.Sleep(120 * time.Millisecond) // above the interval between two drawings of the bar
		p.Set(900)
		p.Done()
	}
	if late.Len() > 0 {
		t.Errorf("shown at once: %q", late.String())
	}
	if text := shown.String(); !strings.Contains(text, "events") || !strings.Contains(text, "900/1000") {
		t.Errorf("not shown: %q", text)
	}

	p := newProgress(&shown, "nobody sits there", -1)
	p.Add(1)
	p.Set(2)
	p.Done()
	if strings.Contains(shown.String(), "nobody") {
		t.Error("shown where nobody sits")
	}
}
