package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

const (
	outlookMinutes = 60
	outlookLasts   = 15 * time.Second
)

// outlook is the forecast of all collections together, by the minute. Minute 0 is the one
// under way. A collection whose forecast fails for lack of time is left out and shows in
// Forecasted.
type outlook struct {
	Now     int64                 `json:"now"` // s since 1970
	Due     int64                 `json:"due"` // within the next hour
	Minutes [outlookMinutes]int64 `json:"minutes"`
	// Most is the minute of a collection with the most documents, nil if nothing is due.
	Most *mostDue `json:"most,omitempty"`
	// Forecasted counts the collections that are in it, of those that have a TTL.
	Forecasted int `json:"forecasted"`
	WithTTL    int `json:"withTTL"`
}

// mostDue is a minute of a collection.
type mostDue struct {
	Collection string `json:"collection"`
	schema.ForecastBucket
}

// forecastAll replies with what comes due within an hour in all collections.
func (h *Handler) forecastAll(w http.ResponseWriter) {
	o, err := h.outlook.get(outlookLasts, h.lookAhead)
	if err != nil {
		refuseError(w, err)
		return
	}
	reply(w, http.StatusOK, o)
}

// lookAhead asks for the forecast of each collection with TTL, one after the other.
func (h *Handler) lookAhead(ctx context.Context) (outlook, error) {
	all, err := h.client.Collections(ctx)
	if err != nil {
		return outlook{}, err
	}
	o := outlook{Now: h.now() / 1000}
	for _, info := range all {
		if info.DefaultTTL == client.TTLOff {
			continue
		}
		o.WithTTL++
		reply, err := h.client.Do(ctx, "forecast", info.Name, "", []byte(`{"next":"1h","bucket":"1m"}`))
		var f schema.Forecast
		switch {
		case err == nil:
			err = json.Unmarshal(reply.Body, &f)
		case ctx.Err() != nil, errors.Is(err, client.ErrCollectionNotFound):
			continue
		}
		if err != nil {
			return outlook{}, err
		}
		o.add(f)
	}
	return o, nil
}

// add adds the forecast of a collection, whose buckets are minutes of the clock.
func (o *outlook) add(f schema.Forecast) {
	o.Forecasted++
	o.Due += f.Due
	for _, b := range f.Buckets {
		minute := min(max(b.From/60-o.Now/60, 0), outlookMinutes-1)
		o.Minutes[minute] += b.Due
		if b.Due > 0 && (o.Most == nil || b.Due > o.Most.Due) {
			o.Most = &mostDue{f.Collection, b}
		}
	}
}
