//go:build cgo_sqlite

package bench

import _ "github.com/mattn/go-sqlite3"

// SQLite in C, which needs a C compiler.
const (
	sqliteDriver = "sqlite3"
	sqliteName   = "sqlite=cgo"
	sqlitePeer   = "SQLite in C (mattn/go-sqlite3)"
)
