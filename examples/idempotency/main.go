// Command idempotency charges cards over HTTP, once for each Idempotency-Key.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

func main() {
	log.Fatal(serve(context.Background(), time.Minute, charge))
}

func serve(ctx context.Context, limit time.Duration, charge http.HandlerFunc) error {
	url := flag.String("nats", cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), "NATS server")
	listen := flag.String("listen", "127.0.0.1:8080", "HTTP address")
	flag.Parse()
	c, err := client.Connect(*url, client.WithReadYourWrites())
	if err != nil {
		return err
	}
	defer c.Close()
	keys, err := OpenKeys(ctx, c, limit, 24*time.Hour)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Printf("serves http://%s/charges\n", l.Addr())
	mux := http.NewServeMux()
	mux.Handle("POST /charges", keys.Handler(func(r *http.Request) string { return r.Header.Get("Authorization") }, charge))
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(l)
}

func charge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "/charges/"+rand.Text()[:8])
	w.WriteHeader(http.StatusCreated)
}
