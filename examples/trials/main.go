// Command trials mails the users of a trial: once some days before it ends, and once at its
// end, whatever crashes meanwhile.
//
//	trials [-length 720h] [-warn 168h] [-mails URL]   any number of these, of which one sends
//	trials start ann ann@example.com
//	trials extend ann
//	trials paid ann
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/examples/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	url := flag.String("nats", cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), "NATS server")
	mails := flag.String("mails", "", "URL of the mail service; without it the mails are printed")
	var given settings.Settings
	given.Flag("length", "length of a trial", client.DefaultTTL)
	given.Flag("warn", "time of the first mail before the end", client.WarnBefore)
	flag.Parse()
	c, err := client.Connect(*url)
	if err != nil {
		return err
	}
	defer c.Close()
	trials, err := OpenTrials(ctx, c, given...)
	if err != nil {
		return err
	}
	switch args := flag.Args(); {
	case len(args) == 0 && *mails == "":
		return trials.Mail(ctx, show)
	case len(args) == 0:
		return trials.Mail(ctx, post(*mails))
	case len(args) == 3 && args[0] == "start":
		return trials.Start(ctx, args[1], args[2])
	case len(args) == 2 && args[0] == "extend":
		return trials.Extend(ctx, args[1])
	case len(args) == 2 && args[0] == "paid":
		return trials.Subscribe(ctx, args[1])
	}
	return errors.New("use start USER ADDRESS, extend USER, paid USER, or nothing to send mails")
}

func show(_ context.Context, _ string, m Mail) error {
	_, err := fmt.Printf("to %s: %s\n", m.To, m.Text)
	return err
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
