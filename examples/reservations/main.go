// Command reservations sells seats over HTTP. A seat that is held and not paid for in time
// comes back.
//
//	curl -X POST localhost:8080/hold/hamlet      {"seat":"hamlet/17","version":"42","until":"…"}
//	curl -X POST localhost:8080/confirm -d '{"seat":"hamlet/17","version":"42"}'
//	curl localhost:8080/free/hamlet              183
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	url := flag.String("nats", cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), "NATS server")
	listen := flag.String("listen", "127.0.0.1:8080", "HTTP address")
	capacity := flag.Int("capacity", 200, "seats of each show")
	hold := flag.Duration("hold", 10*time.Minute, "time to pay")
	flag.Parse()
	if err := run(context.Background(), *url, *listen, *capacity, *hold); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, listen string, capacity int, hold time.Duration) error {
	c, err := client.Connect(url)
	if err != nil {
		return err
	}
	defer c.Close()
	seats, err := OpenSeats(ctx, c, capacity, hold)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("sells at http://%s\n", l.Addr())
	s := http.Server{Handler: seats.Handler(), ReadHeaderTimeout: time.Minute}
	return s.Serve(l)
}

// Handler serves the seats.
func (s *Seats) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hold/{show}", func(w http.ResponseWriter, r *http.Request) {
		hold, err := s.Hold(r.Context(), r.PathValue("show"))
		answer(w, hold, err)
	})
	mux.HandleFunc("POST /confirm", func(w http.ResponseWriter, r *http.Request) {
		var hold Hold
		err := json.NewDecoder(r.Body).Decode(&hold)
		if err == nil {
			err = s.Confirm(r.Context(), hold)
		}
		answer(w, hold.Seat, err)
	})
	mux.HandleFunc("GET /free/{show}", func(w http.ResponseWriter, r *http.Request) {
		taken, err := s.taken(r.Context(), r.PathValue("show"))
		answer(w, s.capacity-len(taken), err)
	})
	return mux
}

func answer(w http.ResponseWriter, value any, err error) {
	switch {
	case errors.Is(err, ErrSoldOut), errors.Is(err, ErrTooLate):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, fmt.Sprintf("try again: %v", err), http.StatusServiceUnavailable)
	default:
		_ = json.NewEncoder(w).Encode(value) // the client has gone
	}
}
