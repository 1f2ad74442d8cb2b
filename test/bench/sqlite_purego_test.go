//go:build !cgo_sqlite

package bench

import _ "modernc.org/sqlite"

// SQLite translated to Go, so that the benchmarks need no C compiler. SQLite in
// C is faster: -tags cgo_sqlite uses that.
const (
	sqliteDriver = "sqlite"
	sqliteName   = "sqlite=purego"
	sqlitePeer   = "SQLite (modernc.org/sqlite)"
)
