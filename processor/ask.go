package processor

import "github.com/lapsedb/lapse/schema"

// maxQueryBytes is the size of the largest query: many may wait.
const maxQueryBytes = 1 << 20

func checkQuery(body []byte) *schema.Error {
	if len(body) > maxQueryBytes {
		return schema.ErrTooLarge.With("the query has %d bytes: at most %d are allowed", len(body), maxQueryBytes)
	}
	return nil
}

// secondFunc gives the second by which deadlines are judged for a state at a log
// time, in ms.
type secondFunc = func(logTime int64) int64
