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

// TestDay: sixteen databases on four processes for a day planned every two seconds.
// A process dies every two hours and comes back ten minutes later. Writers move only then,
// about as many as must, the shares are even within a minute, each database has two copies
// then, and nothing moves while nothing changes.
func TestDay(t *testing.T) {
	const lease, taken, day = 5 * time.Second, 10 * time.Second, 24 * time.Hour
	all, dbs := processes(4, databases(16)), databases(16)
	up := make(map[string]time.Duration) // since when; missing while it is dead
	for _, p := range all {
		up[p.ID] = -time.Hour
	}
	now := make(Writers)
	copies, term := make(map[schema.DatabaseName][]string), make(map[schema.DatabaseName]time.Duration)
	var changed time.Duration // the last time that a process died or came back
	moves, takeovers := 0, 0
	for at := time.Duration(0); at < day; at += 2 * time.Second {
		switch victim := all[int(at/(2*time.Hour))%4].ID; at % (2 * time.Hour) {
		case time.Hour:
			delete(up, victim)
			changed = at
		case time.Hour + 10*time.Minute:
			up[victim] = at
			changed = at
		}
		dead := func(id string) bool { _, lives := up[id]; return !lives }
		var members []Process // as announced: a dead one is heard of for two leases
		for _, p := range all {
			if !dead(p.ID) || at-changed < 2*lease {
				members = append(members, p)
			}
		}
		for _, db := range dbs {
			if dead(now[db]) && at-changed >= lease { // a copy takes the lease
				now[db] = ""
				if i := slices.IndexFunc(copies[db], func(id string) bool { return !dead(id) }); i >= 0 {
					now[db], term[db] = copies[db][i], at
					takeovers++
				}
			}
		}
		plan := Plan(members, now, 2)
		duties := make(map[string][]Duty)
		for _, db := range dbs {
			var standings []Standing
			for id, since := range up {
				standings = append(standings, Standing{Process: id, Writes: true, Copy: slices.Contains(copies[db], id), Age: at - since})
			}
			if Covered(standings, plan[db].Copies) {
				copies[db] = nil // of those that the plan does not name
			}
			for _, id := range plan[db].Copies {
				if !slices.Contains(copies[db], id) && !dead(id) {
					copies[db] = append(copies[db], id)
				}
			}
			if w := now[db]; !dead(w) {
				duties[w] = append(duties[w], Duty{Database: db, Share: plan[db], Standings: standings, Term: at - term[db]})
			} else if w == "" && len(copies[db]) > 0 {
				now[db] = copies[db][0]
			}
		}
		for id, of := range duties {
			if move, ok := Next(id, of, lease); ok {
				now[move.Database], term[move.Database] = move.To, at
				moves++
				if at > time.Minute && at-changed > time.Minute {
					t.Fatalf("%s: %+v, and nothing has changed for %s", at, move, at-changed)
				}
			}
		}
		if at-changed < time.Minute {
			continue
		}
		writes := make(map[string]int)
		for _, db := range dbs {
			writes[now[db]]++
			if len(plan[db].Copies) != 2 || plan[db].Copies[0] != now[db] {
				t.Fatalf("%s: %s is written by %s, its copies are %q", at, db, now[db], plan[db].Copies)
			}
		}
		for id, n := range writes {
			if dead(id) || n > (16+len(up)-1)/len(up) {
				t.Fatalf("%s: %q writes %d databases", at, id, n)
			}
		}
	}
	t.Logf("%d take-overs, %d moves", takeovers, moves)
	// Twelve deaths of a process with four databases: 48 take-overs, and as many moves
	// that give it four again; and those that make three shares of what it left.
	if takeovers != 48 || moves > 2*48 {
		t.Errorf("%d take-overs and %d moves", takeovers, moves)
	}
}
