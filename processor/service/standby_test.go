package service_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/nats-io/nats.go"
)

// TestStandbyEndpoints: the service's metadata and endpoints match its role.
func TestStandbyEndpoints(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		for i, m := range c.Members {
			reply, err := m.Client.Request("$SRV.INFO.lapse", nil, time.Second)
			m.Check(err)
			var info micro.Info
			m.Check(json.Unmarshal(reply.Data, &info))
			host, pid := observe.ThisProcess()
			want := map[string]string{"database": "main", "host": host, "pid": fmt.Sprint(pid), "role": string(m.Processor.Role()), "log": m.Inside().Log.Identity(), "process": m.Options.Node, "node": m.Options.Node}
			if fmt.Sprint(info.Metadata) != fmt.Sprint(want) {
				t.Errorf("member %d: %v, want %v", i, info.Metadata, want)
			}
			endpointsAreDescribed(t, &info, len(reply.Data))
			var subjects []string
			for _, e := range info.Endpoints {
				subjects = append(subjects, strings.TrimPrefix(e.Subject, "lapse.main.api."))
			}
			slices.Sort(subjects)
			wantSubjects := []string{"collection.get.>", "collection.list", "document.get.>", "forecast.>", "history.>", "query.>", "status"}
			if i == 0 { // the writer
				wantSubjects = slices.Insert(wantSubjects, 0, ">")
			}
			if !slices.Equal(subjects, wantSubjects) {
				t.Errorf("member %d answers %v, want %v", i, subjects, wantSubjects)
			}
		}
	})
}

// TestMoveByClient: a client of another account than that of the streams hears at once that it
// may not move the database.
func TestMoveByClient(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		for _, m := range c.Members {
			m.Options.ClientsApart = true
		}
		c.Start()
		if answer := c.Members[0].Want(412, "move", ``); !strings.Contains(fmt.Sprint(answer), "such as the operator") {
			t.Errorf("%v", answer)
		}
	})
}

// TestStatusWithoutJetStream: a process that JetStream does not answer says that, not what ran out.
func TestStatusWithoutJetStream(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		c.Start()
		m := c.Members[0]
		m.Cut()
		if got := fmt.Sprint(m.Want(503, "status", ``)); !strings.Contains(got, "JetStream does not answer the process that serves database main") {
			t.Error(got)
		}
	})
}

// TestStandingWithoutJetStream: with core NATS and without JetStream, a process replies that it is
// a second behind, so that nothing moves to it and no copy ends because of it; a writer that it
// is none.
func TestStandingWithoutJetStream(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		standings := func() (all string) {
			for _, m := range c.Members {
				own := m.Inside().Service.Config.Process.Own()
				s, _ := own.Of("main")
				all += fmt.Sprint(s.Role, " ", s.BehindMs == 1000, " ")
			}
			return all
		}
		if got := standings(); got != "writer false copy false " {
			t.Errorf("with JetStream: %s", got)
		}
		for _, m := range c.Members {
			m.Cut()
		}
		time.Sleep(2 * processortest.LeaseTTL)
		if got := standings(); got != "copy true copy true " {
			t.Errorf("without it: %s", got)
		}
		for _, m := range c.Members {
			m.Mend()
		}
		processortest.Await(func() bool {
			return strings.Contains(standings(), "writer false") && !strings.Contains(standings(), "true")
		})
	})
}

// TestStandbyRechecksRenewal: a standby re-checks for a renewal, folded after its read, before
// it reports a document as gone.
func TestStandbyRechecksRenewal(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", `{"defaultTtl":2}`)
		ts := a.TS(a.Want(201, "document.create.c.renewed", `{}`))
		a.Want(201, "document.create.c.gone", `{}`)
		b.Has(a)
		s := b.Inside().Service
		collection, _ := s.Store.Collection("c")
		records := make(map[schema.DocumentID]projections.Record)
		for _, id := range []schema.DocumentID{"renewed", "gone"} {
			record, _, err := s.Store.Document(collection, id)
			if err != nil {
				t.Fatal(err)
			}
			records[id] = record
		}
		processortest.SleepUntil(ts+1, 0)
		a.Want(200, "document.upsert.c.renewed", `{"n":2}`)
		processortest.SleepUntil(ts+2, 500)
		a.Want(201, "document.create.c.late", `{}`)
		b.Has(a)
		if err := s.Liveness.Expired(collection, "renewed", records["renewed"]); err == nil {
			t.Error("it has gone by what was read before its renewal")
		}
		if err := s.Liveness.Expired(collection, "gone", records["gone"]); err != nil {
			t.Error(err)
		}
	})
}

// TestQueryAcrossDemotion: a query that began at the only writer, without a standby's checks,
// runs again with them if the process has become a standby.
func TestQueryAcrossDemotion(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		a.Start()
		a.Want(201, "collection.create.c", `{}`)
		s := a.Inside().Service
		var q peers.Attempt
		_, confirm, err := s.Liveness.Begin("c", &q)
		a.Check(err)
		a.Check(s.Become(observe.Standby))
		defer func() { a.Check(s.Become(observe.Writer)) }()
		if err := confirm(a.Processor.Seq()); err == nil {
			t.Error("it takes the answer for one of a writer")
		}
		asked := s.Liveness.Now()
		time.Sleep(3 * time.Second)
		second, _, err := s.Liveness.Begin("c", &q)
		a.Check(err)
		if now := second(0); now != asked {
			t.Errorf("it waited for second %d, and is judged by %d", asked, now)
		}
	})
}

// TestRoleAfterStop: a role change during a stop subscribes nothing.
func TestRoleAfterStop(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		a.Start()
		s := a.Inside().Service
		a.Check(s.Stop())
		a.Check(s.Become(observe.Standby))
		if n := a.Service.NumSubscriptions(); n != len(s.Config.Process.Subjects(a.Service)) {
			t.Errorf("%d subscriptions are there after the end", n)
		}
	})
}

// TestDropSubscriptionsReconnectsOnce: DropSubscriptions reconnects once, even if something else reconnects after each
// time.
func TestDropSubscriptionsReconnectsOnce(t *testing.T) {
	processortest.InCrew(t, 1, func(c *processortest.Crew) {
		a := c.Members[0]
		a.Start()
		s := a.Inside().Service
		changes := a.Service.StatusChanged(nats.CONNECTED)
		defer a.Service.RemoveStatusListener(changes)
		go func() {
			for mine := false; ; mine = !mine {
				if _, ok := <-changes; !ok {
					return
				}
				if !mine {
					_ = a.Service.ForceReconnect()
				}
			}
		}()
		before := a.Service.Stats().Reconnects
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.DropSubscriptions(before + 7) // as if it had reconnected during the drain
		}()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
		time.Sleep(5 * time.Second)
		if n := a.Service.Stats().Reconnects - before; n == 0 || n > 4 {
			t.Errorf("the connection was made %d times", n)
		}
		a.Want(404, "collection.get.c", "")
	})
}
