// Command trials mails the users of a trial: once some days before it ends, and once at its
// end, whatever crashes meanwhile. A program that starts trials uses type Trials.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lapsedb/lapse/client"
)

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "NATS server")
	mails := flag.String("mails", "http://127.0.0.1:8025/send", "URL of the mail service")
	length := flag.Duration("length", 30*24*time.Hour, "length of a trial")
	warn := flag.Duration("warn", 7*24*time.Hour, "time of the first mail before the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *mails, *length, *warn); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, mails string, length, warn time.Duration) error {
	c, err := client.Connect(url)
	if err != nil {
		return err
	}
	defer c.Close()
	trials, err := OpenTrials(ctx, c, length, warn)
	if err != nil {
		return err
	}
	return trials.Mail(ctx, post(mails))
}

// post sends mails by a service that sends once for each Idempotency-Key, as mail services
// do: only it can know whether a mail was sent before the crash.
func post(url string) Send {
	return func(ctx context.Context, key string, m Mail) error {
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode >= 300 {
			text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		return nil
	}
}
