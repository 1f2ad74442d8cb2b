package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/lapsedb/lapse/test/versus"
)

// sqlite is an SQLite database of orders on disk, in this process. Each caller has a
// connection and prepared statements of its own.
type sqlite struct {
	orders     int
	ofCustomer []*sql.Stmt
	heavy      *sql.Stmt
}

// The table has a rowid: WITHOUT ROWID would save the second tree for the ids, but ten
// documents by the index took up to a third longer and the scan as long.
const (
	sqliteTable = `CREATE TABLE docs(id TEXT PRIMARY KEY, doc TEXT NOT NULL)`
	sqliteIndex = `CREATE INDEX docs_customer ON docs(json_extract(doc, '$.customer'))`
	// lapse replies in the order of the ids. Ten are sorted quickly; in the scan, +
	// keeps SQLite from reading by the index on the ids, which is slower.
	sqliteOfCustomer = `SELECT doc FROM docs WHERE json_extract(doc, '$.customer') = ? ORDER BY id`
	sqliteHeavy      = `SELECT doc FROM docs WHERE json_extract(doc, '$.status') = 'open'
		AND json_extract(doc, '$.weight') > 25.0 ORDER BY +id`
)

// sqlitePragmas give each connection a cache as large as that of Pebble, and
// memory-mapped files. The sync mode affects only the loading.
var sqlitePragmas = []string{
	"journal_mode = WAL", "synchronous = NORMAL", "cache_size = -131072", "mmap_size = 4294967296", "temp_store = MEMORY",
}

// startSQLite stores all orders in a new database.
func startSQLite(b *testing.B, all orders, callers int) *sqlite {
	b.Helper()
	db, err := sql.Open(sqliteDriver, filepath.Join(b.TempDir(), "orders.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	s := &sqlite{orders: int(all)}
	ctx := context.Background()
	for caller := range callers {
		conn, err := db.Conn(ctx)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		for _, pragma := range sqlitePragmas {
			if _, err := conn.ExecContext(ctx, "PRAGMA "+pragma); err != nil {
				b.Fatalf("%s: %v", pragma, err)
			}
		}
		if caller == 0 {
			if err := loadSQLite(ctx, conn, all); err != nil {
				b.Fatalf("load SQLite: %v", err)
			}
			if s.heavy, err = conn.PrepareContext(ctx, sqliteHeavy); err != nil {
				b.Fatal(err)
			}
		}
		statement, err := conn.PrepareContext(ctx, sqliteOfCustomer)
		if err != nil {
			b.Fatal(err)
		}
		s.ofCustomer = append(s.ofCustomer, statement)
	}
	return s
}

func loadSQLite(ctx context.Context, conn *sql.Conn, all orders) error {
	if _, err := conn.ExecContext(ctx, sqliteTable); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing once committed
	insert, err := tx.PrepareContext(ctx, "INSERT INTO docs VALUES (?, ?)")
	if err != nil {
		return err
	}
	for n := range int(all) {
		doc, _ := all.append(nil, n, 0)
		if _, err := insert.ExecContext(ctx, versus.ID(n), string(doc)); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for _, last := range []string{sqliteIndex, "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := conn.ExecContext(ctx, last); err != nil {
			return fmt.Errorf("%s: %w", last, err)
		}
	}
	return nil
}

func (s *sqlite) customer(caller int, name string) (found int, err error) {
	return s.read(s.ofCustomer[caller], name)
}

func (s *sqlite) scan() (scanned, found int, err error) {
	found, err = s.read(s.heavy)
	return s.orders, found, err
}

// read reads all rows of a statement, with their documents, and returns their number.
func (s *sqlite) read(statement *sql.Stmt, params ...any) (found int, err error) {
	rows, err := statement.Query(params...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var doc sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&doc); err != nil {
			return found, err
		}
		if len(doc) == 0 {
			return found, errors.New("SQLite has an empty document")
		}
		found++
	}
	return found, rows.Err()
}
