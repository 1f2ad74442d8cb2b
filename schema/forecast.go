package schema

import (
	"fmt"
	"regexp"
	"strconv"
)

// Bounds of a forecast.
const (
	// MaxForecastBuckets limits the buckets of a forecast: a day by the minute, and some
	// more.
	MaxForecastBuckets = 2000
	// MaxForecastBytes limits its request.
	MaxForecastBytes = 4096

	defaultForecast = 24 * 3600 // seconds
)

const week = 7 * 24 * 3600 // seconds

// forecastBuckets are the default bucket sizes to choose from, in seconds. With next 24h
// the bucket is 1h, with next 1h it is 5m: the smallest of these with at most
// chosenBuckets.
var forecastBuckets = []int64{1, 5, 10, 30, 60, 5 * 60, 10 * 60, 30 * 60, 3600, 3 * 3600, 6 * 3600, 12 * 3600,
	24 * 3600, week, 4 * week, 13 * week, 52 * week}

// chosenBuckets is the approximate number of buckets if the request gives no size.
const chosenBuckets = 24

// ForecastRequest asks how many documents of a collection come due when. Example:
// {"next":"7d","bucket":"1d","defaultTtl":null} asks for a week by the day, if TTL were
// off.
type ForecastRequest struct {
	Next   int64 // seconds to look ahead; 0 for a day
	Bucket int64 // bucket size in seconds; 0 for a default by Next
	// WhatIf asks for the forecast if the collection's default were DefaultTTL from now
	// on.
	WhatIf     bool
	DefaultTTL DefaultTTL
}

// ParseForecast reads the body of a forecast request and fills in defaults; empty asks
// for the next day.
func ParseForecast(raw []byte) (r ForecastRequest, fault *Error) {
	if len(raw) > MaxForecastBytes {
		return r, ErrTooLarge.With("the forecast request has %d bytes: at most %d are allowed", len(raw), MaxForecastBytes)
	}
	span := func(name string, into *int64) Member {
		return Member{Name: name, Read: func(value []byte) (fault *Error) {
			*into, fault = parseSpan(name, value)
			return fault
		}}
	}
	fault = ReadObject("the forecast request", raw, span("next", &r.Next), span("bucket", &r.Bucket),
		Member{Name: "defaultTtl", Null: true, Read: func(value []byte) (fault *Error) {
			r.WhatIf = true
			r.DefaultTTL, fault = parseDefaultTTL(value)
			return fault
		}})
	if fault != nil {
		return r, fault
	}
	r = r.EnsureDefaults()
	if n := r.buckets(); n > MaxForecastBuckets {
		return r, ErrBadRequest.With("next %ds in buckets of %ds are up to %d of them: at most %d are allowed, use a longer bucket or a shorter next", r.Next, r.Bucket, n, MaxForecastBuckets)
	}
	return r, nil
}

// EnsureDefaults returns r with its zero values filled in.
func (r ForecastRequest) EnsureDefaults() ForecastRequest {
	if r.Next == 0 {
		r.Next = defaultForecast
	}
	for i := 0; r.Bucket == 0; i++ {
		if size := forecastBuckets[i]; r.Next <= chosenBuckets*size || i == len(forecastBuckets)-1 {
			r.Bucket = size
		}
	}
	return r
}

// AppendJSON appends r as the body of a request.
func (r ForecastRequest) AppendJSON(dst []byte) []byte {
	separator := byte('{')
	member := func(name string) {
		dst = append(append(dst, separator), name...)
		separator = ','
	}
	if r.Next != 0 {
		member(`"next":`)
		dst = strconv.AppendInt(dst, r.Next, 10)
	}
	if r.Bucket != 0 {
		member(`"bucket":`)
		dst = strconv.AppendInt(dst, r.Bucket, 10)
	}
	if r.WhatIf {
		member(`"defaultTtl":`)
		dst = r.DefaultTTL.appendJSON(dst)
	}
	if separator == '{' {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}

// buckets returns the largest number of buckets that Buckets can return.
func (r ForecastRequest) buckets() int64 { return (r.Next+r.Bucket-1)/r.Bucket + 1 }

// Buckets returns the beginnings of the buckets of a forecast at now, in seconds, and
// then the end of the last one. Buckets begin at multiples of their size in UTC, weeks
// on Mondays; the first begins at now, and the last ends Next later. r must have its
// defaults.
func (r ForecastRequest) Buckets(now int64) []int64 {
	var offset int64
	if r.Bucket%week == 0 {
		offset = 4 * 24 * 3600 // the first Monday of 1970
	}
	bounds := make([]int64, 1, r.buckets()+1)
	bounds[0] = now
	sinceMultiple := ((now-offset)%r.Bucket + r.Bucket) % r.Bucket
	for at := now - sinceMultiple + r.Bucket; at < now+r.Next; at += r.Bucket {
		bounds = append(bounds, at)
	}
	return append(bounds, now+r.Next)
}

// parseSpan reads a duration: seconds as a number, or a string for ParseSpan. parseSeconds
// accepts -1, too, which is no duration.
func parseSpan(name string, value []byte) (int64, *Error) {
	if n, ok := parseSeconds(value); ok && n >= 0 {
		return int64(n), nil
	}
	if value[0] == '"' {
		text, err := decodeString(value)
		if err == nil {
			var n int64
			if n, err = ParseSpan(text); err == nil {
				return n, nil
			}
		}
	}
	return 0, ErrBadRequest.With("%s %s: use %s", name, Shown(value), spans)
}

var spans = fmt.Sprintf(`whole seconds from 1 to %d, or a duration like "90s", "1h30m" or "30d"`, MaxTTL)

// span is a duration in days, hours, minutes and seconds. All parts are optional, so the
// empty text matches: ParseSpan refuses it, since it has no seconds.
var span = regexp.MustCompile(`^(?:(\d{1,10})d)?(?:(\d{1,10})h)?(?:(\d{1,10})m)?(?:(\d{1,10})s)?$`)

// ParseSpan reads a duration like 24h, 30d or 3600 and returns its seconds, from 1 to
// MaxTTL.
func ParseSpan(text string) (seconds int64, err error) {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		seconds = int64(n)
	} else if parts := span.FindStringSubmatch(text); parts != nil {
		for i, size := range []int64{24 * 3600, 3600, 60, 1} {
			n, _ := strconv.ParseInt(parts[1+i], 10, 64) // 0 if there is none
			seconds += n * size
		}
	}
	if seconds < 1 || seconds > MaxTTL {
		return 0, fmt.Errorf("use %s", spans)
	}
	return seconds, nil
}

// Forecast is the reply to a forecast request. Of the live documents, each is
// counted once: AtOnce, in a bucket, Later or Never. Times are seconds since
// 1970.
type Forecast struct {
	Collection string `json:"collection"`
	// DefaultTTL is the default that the forecast assumes, of the collection or of the
	// request; nil if TTL is off.
	DefaultTTL *DefaultTTL `json:"defaultTtl"`
	WhatIf     bool        `json:"whatIf"` // DefaultTTL is that of the request
	Now        int64       `json:"now"`    // the second of the forecast
	Documents  int64       `json:"documents"`
	// Overdue counts expired documents whose DocumentExpired is not yet in the log: no
	// new default revives them.
	Overdue int64 `json:"overdue"`
	// AtOnce counts documents that would expire at once under the request's default.
	AtOnce int64 `json:"atOnce"`
	Due    int64 `json:"due"`   // before Until
	Later  int64 `json:"later"` // from Until on
	Never  int64 `json:"never"`

	Until   int64            `json:"until"`
	Bucket  int64            `json:"bucket"` // seconds
	Buckets []ForecastBucket `json:"buckets"`
}

// ForecastBucket counts the documents whose deadline is in [From, Until). All
// but the first and the last begin and end at a multiple of the bucket's size.
type ForecastBucket struct {
	From  int64 `json:"from"`
	Until int64 `json:"until"`
	Due   int64 `json:"due"`
}
