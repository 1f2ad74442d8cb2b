package answer

import "github.com/lapsedb/lapse/schema"

// MaxQueryBytes is the size of the largest query: many may wait.
const MaxQueryBytes = 1 << 20

func CheckQuery(body []byte) *schema.Error {
	if len(body) > MaxQueryBytes {
		return schema.ErrTooLarge.With("the query has %d bytes: at most %d are allowed", len(body), MaxQueryBytes)
	}
	return nil
}

// SecondFunc gives the second by which deadlines are judged for a state at a log
// time, in ms.
type SecondFunc = func(logTime int64) int64
