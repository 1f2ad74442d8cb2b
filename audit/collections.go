package audit

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// collection is an existing collection. Two faults are found once: assumed and doubted
// remember that.
type collection struct {
	name        schema.CollectionName
	incarnation uint64
	created     uint64 // sequence of its CollectionCreated, 0 if not seen
	documents   int64  // number of live documents
	held        int64  // number of held ones among them

	// known reports whether policy is known. It is unknown after a missing beginning or a
	// faulty event, until the next event with properties.
	known  bool
	policy schema.Properties
	since  int64 // log time, ms, since which defaultTtl is in force
	warns  int64 // the same for warnBefore

	// unseen is the sequence below which versions may exist whose events are missing, 0
	// for none.
	unseen uint64

	// assumed: no event created the collection. doubted: a mutation was rejected because
	// the collection does not exist. Each is one finding only.
	assumed, doubted bool

	// walked are the seconds before which the orders have no entries, so that a scan
	// skips deleted entries.
	walked [2]int64
}

// add adds the collection of an event under a new incarnation, so that documents of an
// earlier one are not found again.
func (a *Auditor) add(e *schema.Event) *collection {
	a.incarnations++
	c := &collection{name: e.Collection, incarnation: a.incarnations, since: e.Time, warns: e.Time, walked: [2]int64{math.MinInt64, math.MinInt64}}
	a.collections[c.name] = c
	a.name(c.name)
	return c
}

// name notes that the log mentions a collection. It matters only without the log's
// beginning.
func (a *Auditor) name(name schema.CollectionName) {
	if !a.report.Complete {
		a.named[name] = true
	}
}

// before reports whether a missing collection may have been created before the beginning
// of the log, which is no finding.
func (a *Auditor) before(name schema.CollectionName) bool {
	return !a.report.Complete && !a.named[name]
}

// collection returns the collection of an event. A missing one is one finding, and is
// then assumed to exist.
func (a *Auditor) collection(e *schema.Event) *collection {
	c := a.collections[e.Collection]
	if c != nil {
		return c
	}
	if a.before(e.Collection) {
		c = a.add(e)
		c.unseen = a.report.First
		return c
	}
	a.against(Collection, e, "%s in a collection that is not there", e.Type)
	return a.assume(e)
}

// assume adds a missing collection with unknown documents, so that its absence is one
// finding, not one per event.
func (a *Auditor) assume(e *schema.Event) *collection {
	a.report.Headless = a.report.Complete
	c := a.add(e)
	c.unseen, c.assumed = e.Seq, true
	return c
}

// collectionCreated audits CollectionCreated. If the collection was there before, its
// documents are unknown from here on.
func (a *Auditor) collectionCreated(e *schema.Event) error {
	unseen := uint64(0)
	if c := a.collections[e.Collection]; c != nil {
		if !c.assumed {
			// Documents of the earlier incarnation may or may not exist.
			a.against(Collection, e, "it is created and was there before, last created at %d", c.created)
			unseen = e.Seq
		}
		if err := a.remover(c); err != nil {
			return err
		}
	}
	c := a.add(e)
	c.created, c.unseen = e.Seq, unseen
	a.apply(c, e)
	return nil
}

// collectionReplaced audits CollectionReplaced. What was due under the old policy had to
// expire before it; a new deadline or warnBefore ends the chance of old warnings.
func (a *Auditor) collectionReplaced(e *schema.Event) error {
	c := a.collection(e)
	if err := a.settle(c, e); err != nil {
		return err
	}
	if policy, fault := schema.ReadProperties(c.name, e.Body); fault != nil || policy.DefaultTTL != c.policy.DefaultTTL || policy.WarnBefore != c.policy.WarnBefore {
		if err := a.settleWarnings(c, e.Time, closedGrace); err != nil {
			return err
		}
	}
	a.apply(c, e)
	return nil
}

// collectionDeleted audits CollectionDeleted. It carries the properties in force, and
// nothing may have been due or held.
func (a *Auditor) collectionDeleted(e *schema.Event) error {
	c := a.collections[e.Collection]
	if c == nil {
		if !a.before(e.Collection) {
			a.against(Collection, e, "%s of a collection that is not there", e.Type)
		}
		a.name(e.Collection)
		return nil
	}
	if c.held > 0 {
		a.against(DeletedHeld, e, "%d documents of it were held", c.held)
	}
	before, known := c.policy, c.known
	a.apply(c, e)
	if known && c.known && !sameProperties(before, c.policy) {
		a.against(Body, e, "the properties it carries are not those in force")
	}
	if known {
		c.policy, c.known = before, true
	}
	if err := errors.Join(a.settle(c, e), a.settleWarnings(c, e.Time, closedGrace)); err != nil {
		return err
	}
	return a.remover(c)
}

// remover removes a collection with its documents.
func (a *Auditor) remover(c *collection) error {
	delete(a.collections, c.name)
	return a.state.drop(c.incarnation)
}

// apply puts the properties of an event in force. since and warns move only when their
// property changes: a version that was overdue before is not made due again.
func (a *Auditor) apply(c *collection, e *schema.Event) {
	if len(e.Body) == 0 {
		a.against(Body, e, "it carries no properties")
		c.known = false
		return
	}
	policy, fault := schema.ReadProperties(c.name, e.Body)
	if fault != nil {
		a.against(Body, e, "it carries properties that are not legal: %v", fault)
		c.known = false
		return
	}
	if !c.known || c.policy.DefaultTTL != policy.DefaultTTL {
		c.since = e.Time
	}
	if !c.known || c.policy.WarnBefore != policy.WarnBefore {
		c.warns = e.Time
	}
	c.policy, c.known = policy, true
}

func sameProperties(a, b schema.Properties) bool {
	return a.DefaultTTL == b.DefaultTTL && a.IndexingMode == b.IndexingMode &&
		a.PreviousImages == b.PreviousImages && a.WarnBefore == b.WarnBefore &&
		slices.Equal(a.IncludedPaths, b.IncludedPaths) && maps.Equal(a.Metadata, b.Metadata)
}
