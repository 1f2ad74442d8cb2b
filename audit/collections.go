package audit

import (
	"math"
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// collection is one that is there.
type collection struct {
	name        schema.CollectionName
	incarnation uint64
	created     uint64 // sequence of what created it, 0 if that was not seen
	documents   int64  // alive

	// known says that policy is what is in force. Where the log's beginning is
	// missing, or after an event that is no good, it is not known until told.
	known  bool
	policy schema.Properties
	since  int64 // log time, ms, from which its defaultTtl has been in force

	// unseen is the sequence below which versions may be that were not seen, 0
	// if there are none.
	unseen uint64

	// assumed says that nothing created it, and doubted that a mutation was
	// rejected because it was not there; either was told.
	assumed, doubted bool

	// walked are the seconds before which the orders hold nothing that is due:
	// what stood there is gone, and need not be stepped over again.
	walked [2]int64
}

func (a *Auditor) add(e *schema.Event) *collection {
	a.incarnations++
	c := &collection{name: e.Collection, incarnation: a.incarnations, since: e.Time, walked: [2]int64{math.MinInt64, math.MinInt64}}
	a.collections[c.name] = c
	a.name(c.name)
	return c
}

func (a *Auditor) name(name schema.CollectionName) {
	if !a.report.Complete {
		a.named[name] = true
	}
}

// before tells whether a collection that is not there may have been there
// before the log begins, which is no offence.
func (a *Auditor) before(name schema.CollectionName) bool {
	return !a.report.Complete && !a.named[name]
}

// collection returns the collection of an event that wants it to be there. One
// that is not is told once and then assumed.
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

// assume adds a collection that is not there, with documents that nobody knows,
// so that what follows from its absence is not told again and again.
func (a *Auditor) assume(e *schema.Event) *collection {
	a.report.Headless = a.report.Complete
	c := a.add(e)
	c.unseen, c.assumed = e.Seq, true
	return c
}

func (a *Auditor) collectionCreated(e *schema.Event) error {
	unseen := uint64(0)
	if c := a.collections[e.Collection]; c != nil {
		if !c.assumed {
			// Whether the documents are still there nobody can say.
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

func (a *Auditor) collectionReplaced(e *schema.Event) error {
	c := a.collection(e)
	if err := a.settle(c, e); err != nil {
		return err
	}
	a.apply(c, e)
	return nil
}

func (a *Auditor) collectionDeleted(e *schema.Event) error {
	c := a.collections[e.Collection]
	if c == nil {
		if !a.before(e.Collection) {
			a.against(Collection, e, "%s of a collection that is not there", e.Type)
		}
		a.name(e.Collection)
		return nil
	}
	before, known := c.policy, c.known
	a.apply(c, e)
	if known && c.known && !sameProperties(before, c.policy) {
		a.against(Body, e, "the properties it carries are not those in force")
	}
	if known {
		c.policy, c.known = before, true
	}
	if err := a.settle(c, e); err != nil {
		return err
	}
	return a.remover(c)
}

// remover forgets a collection with its documents.
func (a *Auditor) remover(c *collection) error {
	delete(a.collections, c.name)
	return a.state.drop(c.incarnation)
}

// apply puts the properties that an event carries in force.
func (a *Auditor) apply(c *collection, e *schema.Event) {
	if len(e.Body) == 0 {
		a.against(Body, e, "it carries no properties")
		c.known = false
		return
	}
	policy, fault := schema.ParseProperties(c.name, e.Body)
	if fault != nil {
		a.against(Body, e, "it carries properties that are not legal: %v", fault)
		c.known = false
		return
	}
	if !c.known || c.policy.DefaultTTL != policy.DefaultTTL {
		c.since = e.Time
	}
	c.policy, c.known = policy, true
}

func sameProperties(a, b schema.Properties) bool {
	return a.DefaultTTL == b.DefaultTTL && a.IndexingMode == b.IndexingMode &&
		a.PreviousImages == b.PreviousImages && slices.Equal(a.IncludedPaths, b.IncludedPaths)
}
