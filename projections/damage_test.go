package projections

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestDamage: a projection with corrupt files does not end the process: reads fail,
// Damaged reports it, and Open refuses the projection afterwards.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	options := Options{CacheBytes: 1 << 20, DocumentBytes: 1}
	s, err := Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	l := &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	for i := range 1000 {
		l.created("orders", fmt.Sprint(i), fmt.Sprintf(`{"id":"%d"}`, i))
	}
	catchUp(t, s, l)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables: %v, %v", tables, err)
	}
	for _, name := range tables {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// The last bytes locate the index; without them the file does not open.
		for i := range len(b) / 2 {
			b[i] ^= 1
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = Open(dir, options); err == nil {
		orders, ok := s.Collection("orders")
		if !ok {
			t.Fatal("the collection is gone without an error")
		}
		failed := 0
		for i := range 1000 {
			if _, _, err := s.Document(orders, schema.DocumentID(fmt.Sprint(i))); err != nil {
				failed++
			}
		}
		if failed == 0 {
			t.Error("no read failed")
		}
		select {
		case <-s.Damaged():
		default:
			t.Error("no failure is reported")
		}
		_ = s.Close()
	}
	if _, err := Open(dir, options); err == nil {
		t.Error("it is opened again")
	}
}
