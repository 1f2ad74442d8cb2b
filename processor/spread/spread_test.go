package spread

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/schema"
)

func databases(n int) (all []schema.DatabaseName) {
	for i := range n {
		all = append(all, schema.DatabaseName(fmt.Sprint("db", i)))
	}
	return all
}

func processes(n int, dbs []schema.DatabaseName) (all []Process) {
	for i := range n {
		all = append(all, Process{ID: fmt.Sprint("process", i), Writes: true, Databases: dbs})
	}
	return all
}

// TestPlan: every database that can have a writer has one, no process writes more than its
// share if all may serve all, the plan depends on the set of processes alone, and the copies
// are distinct, the writer first.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dbs := databases(rapid.IntRange(1, 40).Draw(t, "databases"))
		everywhere := rapid.Bool().Draw(t, "everywhere")
		all := processes(rapid.IntRange(1, 9).Draw(t, "processes"), dbs)
		writers := 0
		for i := range all {
			if all[i].Writes = rapid.IntRange(0, 3).Draw(t, "writes") > 0; all[i].Writes {
				writers++
			}
			if !everywhere {
				all[i].Databases = rapid.SliceOf(rapid.SampledFrom(dbs)).Draw(t, "serves")
			}
		}
		copies := rapid.IntRange(0, 10).Draw(t, "copies")
		plan := Plan(all, nil, copies)
		if shuffled := rapid.Permutation(all).Draw(t, "order"); !reflect.DeepEqual(plan, Plan(append(shuffled, shuffled...), nil, copies)) {
			t.Fatal("the order of the processes changes the plan")
		}
		writes := make(map[string]int)
		for _, db := range dbs {
			var serve, write []string
			for _, p := range all {
				if slices.Contains(p.Databases, db) {
					serve = append(serve, p.ID)
					if p.Writes {
						write = append(write, p.ID)
					}
				}
			}
			share := plan[db]
			if writes[share.Writer]++; (share.Writer == "") != (write == nil) || share.Writer != "" && !slices.Contains(write, share.Writer) {
				t.Fatalf("%s: %q should write it, of %q", db, share.Writer, write)
			}
			sorted := slices.Compact(slices.Sorted(slices.Values(share.Copies)))
			if len(sorted) != len(share.Copies) || len(sorted) != min(max(copies, 1), len(serve)) || share.Writer != "" && share.Copies[0] != share.Writer ||
				slices.ContainsFunc(sorted, func(id string) bool { return !slices.Contains(serve, id) }) {
				t.Fatalf("%s: %d copies %q of %q, the writer is %q", db, copies, share.Copies, serve, share.Writer)
			}
			if len(write) > 1 && len(share.Copies) > 1 && !slices.Contains(write, share.Copies[1]) {
				t.Fatalf("%s: none of its copies %q can take over, of %q", db, share.Copies, write)
			}
		}
		for id, n := range writes {
			if share := (len(dbs) + max(writers, 1) - 1) / max(writers, 1); everywhere && id != "" && n > share {
				t.Fatalf("%s writes %d databases, its share is %d", id, n, share)
			}
		}
	})
}

// TestFewMove: a process that leaves moves what it wrote and less than as much again; the
// same when it joins. Even shares need more than rendezvous hashing without a bound.
func TestFewMove(t *testing.T) {
	moved := func(before, after []Process) (n int) {
		old := Plan(before, nil, 1)
		for db, share := range Plan(after, nil, 1) {
			if share.Writer != old[db].Writer {
				n++
			}
		}
		return n
	}
	total, needed := 0, 0
	for n := 2; n <= 9; n++ {
		for d := 4; d <= 40; d += 4 {
			all := processes(n, databases(d))
			for i := range all {
				others := slices.Delete(slices.Clone(all), i, i+1)
				share := (d + n - 1) / n
				needed += share
				total += moved(all, others)
				if m := moved(others, all); m != moved(all, others) || m > d {
					t.Errorf("%d processes, %d databases: %d move", n, d, m)
				}
			}
		}
	}
	t.Logf("%d moves, %d needed", total, needed)
	if total > 2*needed {
		t.Errorf("%d moves, where %d are needed", total, needed)
	}
}

// TestNext: a database moves to the process that should write it when that is ready, one at
// a time and in their order.
func TestNext(t *testing.T) {
	const lease = 3 * time.Second
	ready := Standing{Process: "b", Writes: true, Copy: true, Behind: MostBehind - 1, Age: 2 * lease}
	for name, c := range map[string]struct {
		change func(*Duty)
		moves  bool
	}{
		"ready":              {func(*Duty) {}, true},
		"its own":            {func(d *Duty) { d.Share.Writer = "a" }, false},
		"nobody's":           {func(d *Duty) { d.Share.Writer = "" }, false},
		"behind":             {func(d *Duty) { d.Standings[0].Behind = MostBehind }, false},
		"young":              {func(d *Duty) { d.Standings[0].Age-- }, false},
		"without a copy":     {func(d *Duty) { d.Standings[0].Copy = false }, false},
		"silent":             {func(d *Duty) { d.Standings[0].Silent = lease }, false},
		"new writer":         {func(d *Duty) { d.Term-- }, false},
		"gone":               {func(d *Duty) { d.Standings = nil }, false},
		"only reads":         {func(d *Duty) { d.Standings[0].Writes = false }, false},
		"after a failure":    {func(d *Duty) { d.SinceFailure = AfterFailure - 1 }, false},
		"a minute after one": {func(d *Duty) { d.SinceFailure = AfterFailure }, true},
	} {
		d := Duty{Database: "orders", Share: Share{Writer: "b"}, Standings: []Standing{ready}, Term: 2 * lease}
		c.change(&d)
		later := Duty{Database: "sessions", Share: Share{Writer: "c"}, Standings: []Standing{{Process: "c", Writes: true, Copy: true, Age: 2 * lease}}, Term: 2 * lease}
		want := Move{"sessions", "c"}
		if c.moves {
			want = Move{"orders", "b"}
		}
		if got, ok := Next("a", []Duty{later, d}, lease); !ok || got != want {
			t.Errorf("%s: %+v, %t, want %+v", name, got, ok, want)
		}
		if _, ok := Next("a", []Duty{d}, lease); ok != c.moves {
			t.Errorf("%s: moves %t", name, ok)
		}
	}
}

// spreadDay is a day of sixteen databases on four processes.
type spreadDay struct {
	t        *testing.T
	all      []Process
	dbs      []schema.DatabaseName
	up       map[string]time.Duration // since when; missing while it is dead
	now      Writers
	copies   map[schema.DatabaseName][]string
	term     map[schema.DatabaseName]time.Duration
	changed  time.Duration // the last time that a process died or came back
	moves    int
	takeOver int
}

const dayLease = 5 * time.Second

// TestDay: sixteen databases on four processes for a day, planned every two seconds while
// anything changes. A process dies every two hours and comes back ten minutes later. Writers
// move only then, about as many as must, the shares are even within a minute, each database
// has two copies then, and nothing moves while nothing changes.
func TestDay(t *testing.T) {
	dbs := databases(16)
	d := &spreadDay{t: t, all: processes(4, dbs), dbs: dbs, up: make(map[string]time.Duration), now: make(Writers),
		copies: make(map[schema.DatabaseName][]string), term: make(map[schema.DatabaseName]time.Duration)}
	for _, p := range d.all {
		d.up[p.ID] = -time.Hour
	}
	for at := time.Duration(0); at < 24*time.Hour; {
		d.step(at)
		if at += 2 * time.Second; at-d.changed > 2*time.Minute {
			at = at.Truncate(time.Minute) + time.Minute
		}
	}
	t.Logf("%d take-overs, %d moves", d.takeOver, d.moves)
	// Twelve deaths of a process with four databases: 48 take-overs, and as many moves
	// that give it four again; and those that make three shares of what it left.
	if d.takeOver != 48 || d.moves > 2*48 {
		t.Errorf("%d take-overs and %d moves", d.takeOver, d.moves)
	}
}

func (d *spreadDay) dead(id string) bool { _, lives := d.up[id]; return !lives }

func (d *spreadDay) step(at time.Duration) {
	switch victim := d.all[int(at/(2*time.Hour))%4].ID; at % (2 * time.Hour) {
	case time.Hour:
		delete(d.up, victim)
		d.changed = at
	case time.Hour + 10*time.Minute:
		d.up[victim], d.changed = at, at
	}
	var members []Process // as announced: a dead one is heard of for two leases
	for _, p := range d.all {
		if !d.dead(p.ID) || at-d.changed < 2*dayLease {
			members = append(members, p)
		}
	}
	for _, db := range d.dbs {
		if d.dead(d.now[db]) && at-d.changed >= dayLease { // a copy takes the lease
			d.now[db] = ""
			if i := slices.IndexFunc(d.copies[db], func(id string) bool { return !d.dead(id) }); i >= 0 {
				d.now[db], d.term[db] = d.copies[db][i], at
				d.takeOver++
			}
		}
	}
	plan := Plan(members, d.now, 2)
	for id, of := range d.duties(at, plan) {
		if move, ok := Next(id, of, dayLease); ok {
			d.now[move.Database], d.term[move.Database] = move.To, at
			d.moves++
			if at > time.Minute && at-d.changed > time.Minute {
				d.t.Fatalf("%s: %+v, and nothing has changed for %s", at, move, at-d.changed)
			}
		}
	}
	if at-d.changed >= time.Minute {
		d.even(at, plan)
	}
}

// duties begins and ends copies as planned, and returns the duties of each writer.
func (d *spreadDay) duties(at time.Duration, plan map[schema.DatabaseName]Share) map[string][]Duty {
	duties := make(map[string][]Duty)
	for _, db := range d.dbs {
		var standings []Standing
		for id, since := range d.up {
			standings = append(standings, Standing{Process: id, Writes: true, Copy: slices.Contains(d.copies[db], id), Age: at - since})
		}
		if Covered(standings, plan[db].Copies) {
			d.copies[db] = nil // of those that the plan does not name
		}
		for _, id := range plan[db].Copies {
			if !slices.Contains(d.copies[db], id) && !d.dead(id) {
				d.copies[db] = append(d.copies[db], id)
			}
		}
		if w := d.now[db]; !d.dead(w) {
			duties[w] = append(duties[w], Duty{Database: db, Share: plan[db], Standings: standings, Term: at - d.term[db]})
		} else if w == "" && len(d.copies[db]) > 0 {
			d.now[db] = d.copies[db][0]
		}
	}
	return duties
}

// even checks the shares of the processes that live.
func (d *spreadDay) even(at time.Duration, plan map[schema.DatabaseName]Share) {
	writes := make(map[string]int)
	for _, db := range d.dbs {
		writes[d.now[db]]++
		if len(plan[db].Copies) != 2 || plan[db].Copies[0] != d.now[db] {
			d.t.Fatalf("%s: %s is written by %s, its copies are %q", at, db, d.now[db], plan[db].Copies)
		}
	}
	for id, n := range writes {
		if d.dead(id) || n > (len(d.dbs)+len(d.up)-1)/len(d.up) {
			d.t.Fatalf("%s: %q writes %d databases", at, id, n)
		}
	}
}
