package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// listed is a line of lapse database list.
type listed struct {
	Database    string
	Served      bool
	Interrupted string
	Streams     []struct{ Stream string }
	Snapshots   int
	Projection  int64
}

func catalogOf(t testing.TB, r harness.Result) map[string]listed {
	t.Helper()
	all := make(map[string]listed)
	for _, line := range harness.Lines(r.OK()) {
		var db listed
		check(t, json.Unmarshal([]byte(line), &db))
		all[db.Database] = db
	}
	return all
}

func refusesLine(t testing.TB, r harness.Result, want string) {
	t.Helper()
	if r.Exits(1); !strings.Contains(r.Stderr, want) || len(harness.Lines(r.Stderr)) != 1 {
		t.Errorf("it says %q, want %q", r.Stderr, want)
	}
}

// inStore runs a command of lapse database on a store directory.
func inStore(t testing.TB, store string, args ...string) harness.Result {
	t.Helper()
	return harness.Run(t, nil, append(append([]string{"database"}, args...), "--store-dir", store)...)
}

// TestDatabaseDelete: a database goes with all that belongs to it, and the others stay
// whole: by the operator while lapse serves others, or in the store directory of a stopped
// one. One that is served stays, or has held documents.
func TestDatabaseDelete(t *testing.T) {
	t.Parallel()
	s, key := serveOperator(t, "--database", "main,shop,shop-2")
	for _, db := range []string{"main", "shop", "shop-2"} {
		s.Run("collection", "create", "c", "--database", db).OK()
		s.Run("document", "create", "c", "a", "{}", "--database", db).OK()
		s.Run("snapshot", "create", "--database", db).OK()
	}
	s.Run("document", "hold", "c", "a", "--database", "shop").OK()
	remove := func(db string) harness.Result { return s.Run("database", "delete", db, "--yes", "--nkey", key) }
	refusesLine(t, remove("shop"), "is served: stop every lapse")
	refusesLine(t, inStore(t, s.Dir, "delete", "shop", "--yes"), "another process uses the store directory")
	refusesLine(t, inStore(t, s.Dir, "list"), "another process uses the store directory")
	all := catalogOf(t, s.Run("database", "list", "--nkey", key))
	if db := all["shop"]; len(all) != 3 || !db.Served || len(db.Streams) != 3 || db.Snapshots != 1 {
		t.Errorf("there are %+v", all)
	}
	s.Stop()
	refusesLine(t, inStore(t, s.Dir, "delete", "shop", "--yes"), "has held documents (1, such as c/a)")
	if all := catalogOf(t, inStore(t, s.Dir, "list")); all["shop"].Served || all["shop"].Projection == 0 || len(all["shop"].Streams) != 3 {
		t.Errorf("in the directory there are %+v", all)
	}

	s.With("--operator-nkey-out", key, "--database", "main,shop")
	s.Restart()
	s.Run("document", "release", "c", "a", "--database", "shop").OK()
	r := remove("shop-2")
	if r.OK(); !strings.Contains(r.Stderr, "remove projection/shop-2") {
		t.Errorf("it says %q", r.Stderr)
	}
	refusesLine(t, remove("shop-2"), "there is no such database")
	s.Stop()
	inStore(t, s.Dir, "delete", "shop-2", "--yes").OK() // the projection
	inStore(t, s.Dir, "delete", "shop", "--yes").OK()
	refusesLine(t, inStore(t, s.Dir, "delete", "shop", "--yes"), "there is no such database")
	for name := range harness.Files(t, s.Dir) {
		if strings.Contains(name, "shop") {
			t.Errorf("%s is still there", name)
		}
	}
	s.Restart()
	s.Run("document", "get", "c", "a").OK()
	s.Run("snapshot", "verify").OK()
	s.Run("collection", "get", "c", "--database", "shop").Exits(1) // a new database
}

// TestDatabaseHeldBefore: a hold counts although retention has trimmed it from the log.
func TestDatabaseHeldBefore(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--retain", "1s", "--snapshot-every", "1s")
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", "")
	mustAsk(t, nc, 201, "document.create.c.old", `{}`)
	mustAsk(t, nc, 200, "document.hold.c.old", "")
	n := 0
	eventually(t, "the log is trimmed", func() bool {
		n++
		mustAsk(t, nc, 201, fmt.Sprint("document.create.c.d", n), "{}")
		return strings.Contains(s.Stderr(), "log trimmed")
	})
	s.Stop()
	refusesLine(t, inStore(t, s.Dir, "delete", "main", "--yes"), "has held documents (1, such as c/old)")
	s.Restart()
	mustAsk(t, nc, 200, "document.release.c.old", "")
	s.Stop()
	inStore(t, s.Dir, "delete", "main", "--yes").OK()
	if all := catalogOf(t, inStore(t, s.Dir, "list")); len(all) > 0 {
		t.Errorf("there are %+v", all)
	}
}

// TestDatabaseDeleteKilled: lapse refuses what a deletion leaves that was killed, and another
// deletion finishes it. Other databases are served meanwhile.
func TestDatabaseDeleteKilled(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--database", "main,shop")
	for _, db := range []string{"main", "shop"} {
		s.Run("collection", "create", "c", "--database", db).OK()
		s.Run("document", "create", "c", "a", "{}", "--database", db).OK()
		s.Run("snapshot", "create", "--database", db).OK()
	}
	s.Stop()
	marker := filepath.Join(s.Dir, "deleting-shop")
	meta := exists(filepath.Join(s.Dir, "jetstream", "LAPSE", "streams", "LAPSE_shop", "meta.inf"))
	killOnce(t, func() bool { return exists(marker)() || !meta() }, "database", "delete", "shop", "--yes", "--store-dir", s.Dir)
	if !exists(marker)() { // it was done before it was killed: this is how it is killed early
		check(t, os.WriteFile(marker, nil, 0o600))
	}
	if db := catalogOf(t, inStore(t, s.Dir, "list"))["shop"]; !strings.Contains(db.Interrupted, "`lapse database delete` was interrupted") {
		t.Errorf("the list has %+v", db)
	}
	refusesLine(t, harness.Run(t, nil, "serve", "--store-dir", s.Dir, "--listen", "127.0.0.1:0", "--console", "off", "--database", "shop"), "run it again")
	s.With("--database", "main") // the other one is in nobody's way
	s.Restart()
	s.Run("document", "get", "c", "a").OK()
	s.Stop()
	inStore(t, s.Dir, "delete", "shop", "--yes").OK()
	for name := range harness.Files(t, s.Dir) {
		if strings.Contains(name, "shop") {
			t.Errorf("%s is still there", name)
		}
	}
	s.With("--database", "main,shop")
	s.Restart()
	s.Run("document", "get", "c", "a").OK()
	s.Run("collection", "get", "c", "--database", "shop").Exits(1)
}
