package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Errors of holding and confirming.
var (
	ErrSoldOut = errors.New("sold out: a held seat may come back")
	ErrTooLate = errors.New("the hold has run out, or was given back")
)

// Seats are numbered places, or pieces in stock. A taken seat is a document whose id is
// show/number: so no seat is taken twice, and no more than there are. While it is held it
// has a ttl; a sold one has none.
type Seats struct {
	coll     *client.Collection
	capacity int           // of each show
	hold     time.Duration // time to confirm, in whole seconds
}

// Hold is a held seat.
type Hold struct {
	Seat    string    `json:"seat"`
	Version string    `json:"version"` // of the hold: a later one of the same seat has another
	Until   time.Time `json:"until"`
}

type seat struct {
	Sold string `json:"sold,omitempty"` // version of the hold that was confirmed
}

// OpenSeats opens the collection seats, and creates it the first time.
func OpenSeats(ctx context.Context, c *client.Client, capacity int, hold time.Duration) (*Seats, error) {
	coll, err := c.OpenCollection(ctx, "seats", client.TTLPerDocument())
	return &Seats{coll, capacity, hold}, err
}

// Hold holds a free seat of a show, or fails with ErrSoldOut.
func (s *Seats) Hold(ctx context.Context, show string) (Hold, error) {
	taken, err := s.taken(ctx, show)
	if err != nil {
		return Hold{}, err
	}
	// Others choose at the same time: a random order lets few choose the same seat.
	for _, n := range rand.Perm(s.capacity) {
		id := fmt.Sprintf("%s/%d", show, n)
		if taken[id] {
			continue
		}
		item, err := client.Create(ctx, s.coll, id, seat{}, client.TTL(s.hold))
		if errors.Is(err, client.ErrDocumentExists) {
			continue
		}
		return Hold{id, item.ETag, item.Deadline}, err
	}
	return Hold{}, ErrSoldOut
}

// Confirm sells a held seat, or fails with ErrTooLate. Either it or the expiry of the hold
// wins, and the log says which: charge the card after it. After any other error, and at any
// time, it may be repeated.
func (s *Seats) Confirm(ctx context.Context, h Hold) error {
	_, err := client.Replace(ctx, s.coll, h.Seat, seat{Sold: h.Version}, client.NeverExpire, client.IfMatch(h.Version))
	if errors.Is(err, client.ErrPreconditionFailed) {
		var now client.Item[seat]
		if now, err = client.Get[seat](ctx, s.coll, h.Seat); err == nil && now.Value.Sold != h.Version {
			return ErrTooLate // another one holds it, or has bought it
		}
	}
	return tooLate(err)
}

// Release gives a held seat back before its time, or fails with ErrTooLate.
func (s *Seats) Release(ctx context.Context, h Hold) error {
	return tooLate(client.Delete(ctx, s.coll, h.Seat, client.IfMatch(h.Version)))
}

func tooLate(err error) error {
	if errors.Is(err, client.ErrDocumentNotFound) || errors.Is(err, client.ErrPreconditionFailed) {
		return ErrTooLate
	}
	return err
}

// taken returns the ids of the held and sold seats of a show.
func (s *Seats) taken(ctx context.Context, show string) (map[string]bool, error) {
	taken := map[string]bool{}
	for item, err := range client.Query[json.RawMessage](ctx, s.coll, client.IDPrefix(show+"/"), client.Select("/id"), client.PageSize(client.MaxPageSize)) {
		if err != nil {
			return nil, err
		}
		taken[item.ID] = true
	}
	return taken, nil
}
