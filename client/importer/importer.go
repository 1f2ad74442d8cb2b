// Package importer stores lines, each a JSON object, as the documents of a collection. A
// line goes through these steps:
//
//	line ─► misplaced ─► operation ─► RunBatches ─► done ─► Count, Reject
//	         the file      id, moment   batches,      what the server
//	         as a whole    and document InFlight      made of it
//
// One import has one order: results come in the order of the lines, and Last names the
// line up to which all are done. So an import that is interrupted goes on after it.
package importer

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// InFlight is the number of requests at a time.
const InFlight = 8

// Count counts what became of the lines. Each line is counted once: as created, replaced,
// existed, past or refused.
type Count struct {
	Lines    int     `json:"lines"`
	Created  int     `json:"created"`
	Replaced int     `json:"replaced"`
	Again    int     `json:"again,omitempty"` // of Replaced: sent again since an answer was lost; some may be new, with two events
	Existed  int     `json:"existed"`         // left alone by create
	Past     int     `json:"past"`            // already expired
	Refused  int     `json:"refused"`
	Moments  Moments `json:"moments"`

	Forecast *client.Forecast `json:"forecast,omitempty"` // of a dry run
}

// Moments counts the lines by the format of their moment.
type Moments struct {
	UnixSeconds      int `json:"unixSeconds"`
	UnixMilliseconds int `json:"unixMilliseconds"`
	RFC3339          int `json:"rfc3339"`
	Null             int `json:"null"`
	None             int `json:"none"`
}

// of returns the counter of a format.
func (m *Moments) of(f format) *int {
	return [...]*int{noExpiry: &m.None, forEver: &m.Null, unixSeconds: &m.UnixSeconds, unixMilliseconds: &m.UnixMilliseconds, rfc3339: &m.RFC3339}[f]
}

// Import is an import in progress. It is for one goroutine. Rules and counts belong to the
// goroutine of Run; what is in flight belongs to client.RunBatches. A line that was sent
// waits in pending until its result comes.
type Import struct {
	// Reject gets each line that is refused, in order, with its number from 1, and why. The
	// text is valid during the call. An error ends the import.
	Reject func(number int, text []byte, fault *client.Error) error
	// Progress gets the size of each line that is done, in bytes; nil for nobody.
	Progress func(bytes int)

	rules    Rules
	coll     *client.Collection
	count    Count
	forecast forecast
	last     int
}

// Begin begins an import into a collection. The error is ErrBadRequest if lines have moments
// and TTL is off. The properties of the collection are those that coll was opened with:
// deadlines of a dry run are by them.
func (r Rules) Begin(coll *client.Collection) (*Import, error) {
	if r.Expires != nil && coll.Info().DefaultTTL == schema.Off {
		return nil, client.ErrBadRequest.With("TTL is off in %s, so that no document would expire at its moment: turn it on first, with `lapse collection replace %[1]s --default-ttl -1`, or import without expires", coll.Name())
	}
	im := &Import{rules: r, coll: coll}
	im.forecast.begin(time.Now().Unix())
	return im, nil
}

// Last returns the number of the line up to which all are done.
func (im *Import) Last() int { return im.last }

// Count returns what became of the lines so far.
func (im *Import) Count() Count {
	count := im.count
	if im.rules.DryRun {
		count.Forecast = im.forecast.result(im.coll.Info())
	}
	return count
}

// Run imports lines. The error is a schema.FileError if the first ones show that they are no
// documents, as the events of a log; the lines before are done then. It tries again for a
// minute while there is no writer; any other error of a request is returned. An import
// that fails leaves the lines that were stored. Running it again with upsert leads to the
// same documents.
func (im *Import) Run(ctx context.Context, lines iter.Seq2[schema.Line, error]) error {
	var pending []*importLine // sent, in order
	var unreadable error
	batches := func(yield func(*client.Batch) bool) {
		first := true
		for line, err := range lines {
			if err == nil {
				err = misplaced(line, first)
			}
			first = false
			l, b := &importLine{Line: line}, im.coll.Batch()
			switch {
			case errors.Is(err, schema.ErrPause):
				if !yield(nil) {
					return
				}
				continue
			case err == nil:
				im.operation(l, b, time.Now().Unix())
			case line.Number > 0 && line.Bytes > schema.MaxLineBytes:
				l.fault = client.ErrTooLarge.With("the line is longer than %d bytes: a document has at most %d", schema.MaxLineBytes, schema.MaxDocumentBytes)
			default:
				unreadable = err
				return
			}
			if pending = append(pending, l); !yield(b) {
				return
			}
		}
	}
	for results, err := range client.RunBatches(ctx, batches, InFlight) {
		l := pending[0]
		pending = pending[1:]
		if tooLarge := errors.Is(err, client.ErrTooLarge); err != nil && !tooLarge {
			return err
		} else if tooLarge { // for the server's max_payload
			l.fault = schema.AsError(err)
		}
		if err := im.done(l, results); err != nil {
			return err
		}
	}
	return unreadable
}

// done counts a line by the result of its operation. A refused line does not end the
// import, unless Reject returns an error: one bad line in a million is no reason to stop.
func (im *Import) done(l *importLine, results client.Results) error {
	exists, again := false, false
	if len(results) > 0 && l.fault == nil {
		exists, again = results[0].Code == 200, results[0].Again
		switch fault := schema.AsError(results[0].Err); {
		case results[0].Err == nil:
		case im.rules.DryRun && fault.Code == client.ErrDocumentNotFound.Code:
		case im.rules.DryRun && fault.Code == client.ErrTooLarge.Code, im.rules.Create && fault.Code == client.ErrDocumentExists.Code:
			exists = true
		default:
			l.fault = fault
			// It expired on its way.
			l.past = fault.Name == client.ErrBadTTL.Name && l.end.format > forEver && l.end.expiresAt <= time.Now().Unix()+1
		}
	}
	if im.Progress != nil {
		im.Progress(l.Bytes)
	}
	im.last = l.Number
	c := &im.count
	c.Lines++
	if im.rules.Expires != nil && (l.fault == nil || l.past) {
		*c.Moments.of(l.end.format)++
	}
	switch {
	case l.past:
		c.Past++
	case l.fault != nil:
		c.Refused++
		return im.Reject(l.Number, l.Text, l.fault)
	case exists && im.rules.Create:
		c.Existed++
	default:
		im.forecast.add(l.deadline)
		if exists {
			c.Replaced++
			if again {
				c.Again++
			}
		} else {
			c.Created++
		}
	}
	return nil
}
