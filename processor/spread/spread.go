// Package spread says which process should write which database, which ones should have a
// copy of it, and what moves next. It is pure: every process computes the same from the
// same list. What it says is advice, since lease and fence decide who writes.
//
// Start reading at Plan: who should do what. move.go says what a process hands over next.
package spread

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// Process is a process that announces itself.
type Process struct {
	ID        string
	Writes    bool                  // it may be a writer
	Databases []schema.DatabaseName // that it may serve
}

// Share is what processes should do for one database.
type Share struct {
	Writer string   // "" if no process may write it
	Copies []string // all that should fold and serve it, the writer first
}

// Writers names the process that writes each database, as far as it is known.
type Writers map[schema.DatabaseName]string

// Plan returns who should serve each database that a process may serve. The order of the
// processes does not matter; of two with one id the first counts.
//
// Writers are spread by rendezvous hashing with a bound: no process writes more than its
// even share, rounded up, unless no other may write a database. A process that joins or
// leaves moves the databases that it takes or leaves, and few others. A present writer
// stays if the hash alone would have it move: the shares are even already. So a process
// that is restarted does not get back what it had.
//
// Copies are the writer and the next processes by hash; at least one of those may write, if
// any may. copies < 1 means 1, more than the processes means all.
func Plan(processes []Process, now Writers, copies int) map[schema.DatabaseName]Share {
	candidates := make(map[schema.DatabaseName][]ranked)
	writers, known := 0, make(map[string]bool)
	for _, p := range processes {
		if known[p.ID] {
			continue
		}
		known[p.ID] = true
		if p.Writes {
			writers++
		}
		for _, db := range slices.Compact(slices.Sorted(slices.Values(p.Databases))) {
			candidates[db] = append(candidates[db], ranked{db, p.ID, p.Writes, score(db, p.ID)})
		}
	}
	var pairs []ranked
	for _, of := range candidates {
		slices.SortFunc(of, ranked.compare)
		pairs = append(pairs, of...)
	}
	slices.SortFunc(pairs, ranked.compare)
	share := 0
	if writers > 0 {
		share = (len(candidates) + writers - 1) / writers
	}
	load := make(load)
	for _, p := range now {
		load[p]++
	}
	should := assign(pairs, len(candidates), share)
	plan := make(map[schema.DatabaseName]Share, len(candidates))
	for db, of := range candidates {
		writer := should[db]
		if w := now[db]; slices.ContainsFunc(of, func(r ranked) bool { return r.process == w && r.writes }) && load.even(w, writer, share) {
			writer = w
		}
		plan[db] = Share{Writer: writer, Copies: choose(of, writer, copies)}
	}
	return plan
}

// load is how many databases each process writes.
type load map[string]int

// even reports whether a process may keep a database that another one should write: it
// writes no more than share, and the other would then write more than it does now.
func (l load) even(self, other string, share int) bool {
	return l[self] <= share && l[other]+1 >= l[self]
}

// ranked is a process for a database.
type ranked struct {
	database schema.DatabaseName
	process  string
	writes   bool
	score    uint64
}

// compare puts the highest score first.
func (r ranked) compare(o ranked) int {
	return cmp.Or(cmp.Compare(o.score, r.score), cmp.Compare(r.database, o.database), cmp.Compare(r.process, o.process))
}

// score is the weight of rendezvous hashing (Thaler and Ravishankar, 1998).
func score(db schema.DatabaseName, process string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(db))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(process))
	// FNV spreads the last bytes badly: the finalizer of MurmurHash3.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// assign gives each database the writer of the highest score that has room, the highest
// scores of all first. It is the one stable matching: no database and process would both
// rather have each other. share is 0 if no process writes.
func assign(pairs []ranked, databases, share int) map[schema.DatabaseName]string {
	writer, writes := make(map[schema.DatabaseName]string), make(map[string]int)
	// Beyond the even share only databases that no other process may write.
	for room := share; room > 0 && len(writer) < databases; room++ {
		assigned := len(writer)
		for _, r := range pairs {
			if _, has := writer[r.database]; r.writes && !has && writes[r.process] < room {
				writer[r.database] = r.process
				writes[r.process]++
			}
		}
		if len(writer) == assigned && room > databases {
			break // the rest have no process that writes
		}
	}
	return writer
}

// choose returns the copies of a database, of its candidates in the order of their scores.
func choose(of []ranked, writer string, copies int) (chosen []string) {
	after := max(slices.IndexFunc(of, func(r ranked) bool { return r.process == writer }), 0)
	order := slices.Concat(of[after:], of[:after])
	// Of the others the first one that may write: it takes over.
	if i := slices.IndexFunc(order[1:], func(r ranked) bool { return r.writes }); i > 0 {
		next := order[1+i]
		order = slices.Insert(slices.Delete(order, 1+i, 2+i), 1, next)
	}
	for _, r := range order[:min(max(copies, 1), len(order))] {
		chosen = append(chosen, r.process)
	}
	return chosen
}
