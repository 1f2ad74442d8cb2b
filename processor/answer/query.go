package answer

import "github.com/lapsedb/lapse/schema"

// MaxQueryBytes is the maximum size of a query in bytes, since many may wait.
const MaxQueryBytes = 1 << 20

// CheckQuery checks the size of a query.
func CheckQuery(body []byte) *schema.Error {
	if len(body) > MaxQueryBytes {
		return schema.ErrTooLarge.With("the query has %d bytes: at most %d are allowed", len(body), MaxQueryBytes)
	}
	return nil
}

// SecondFunc returns the unix second by which to judge deadlines in a state with that log
// time, in ms.
type SecondFunc = func(logTime int64) int64
