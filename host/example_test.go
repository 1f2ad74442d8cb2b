package host_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/schema"
)

// A program serves a database, stores a document that expires in an hour, and stops.
func Example() {
	dir, err := os.MkdirTemp("", "lapse")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- host.Run(ctx, host.Options{
			StoreDir:  dir,
			Databases: []schema.DatabaseName{"main"},
			Listen:    "127.0.0.1:0", // any free port
			Events: func(e host.Event) {
				if e, ok := e.(host.Ready); ok {
					ready <- e.URL
				}
			},
		})
	}()
	select {
	case url := <-ready:
		store(ctx, url)
	case err := <-ended:
		log.Fatal(err)
	}
	stop()
	fmt.Println("stopped:", <-ended)
	// Output:
	// expires after 1h0m0s
	// stopped: <nil>
}

func store(ctx context.Context, url string) {
	lapse, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer lapse.Close()
	sessions, err := lapse.CreateCollection(ctx, "sessions", client.TTLPerDocument())
	if err != nil {
		log.Fatal(err)
	}
	item, err := client.Upsert(ctx, sessions, "a", map[string]any{"user": "ann"}, client.TTL(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("expires after", item.Deadline.Sub(item.Modified))
}
