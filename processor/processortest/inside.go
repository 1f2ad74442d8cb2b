package processortest

import (
	"reflect"
	"unsafe"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/nats-io/nats.go"
)

// Rooms are the parts of a processor.
type Rooms struct {
	Store     *projections.Store
	Log       *eventlog.Log
	Service   *service.Service
	Writer    *writer.Writer
	Retention *snapshot.Retention
	Lease     *lease.Lease // nil without standbys
}

// Inside returns the rooms of the processor. Its fields are private, and read here so that
// nothing of the product has to be exported for the tests of a room.
func (w *Wire) Inside() Rooms { return Inside(w.Processor) }

// Inside returns the rooms of p.
func Inside(p *processor.Processor) Rooms {
	return Rooms{private[*projections.Store](p, "store"), private[*eventlog.Log](p, "log"), private[*service.Service](p, "service"),
		private[*writer.Writer](p, "writer"), private[*snapshot.Retention](p, "retention"), private[*lease.Lease](p, "lease")}
}

// LoseAcks makes the writer lose the acknowledgements of its appends until it listens again.
func (w *Wire) LoseAcks() {
	w.T.Helper()
	w.Check(private[*nats.Subscription](w.Inside().Log, "ackSub").Unsubscribe())
}

// private returns a field of the struct that p points to.
func private[T any](p any, name string) T {
	return *(*T)(unsafe.Pointer(reflect.ValueOf(p).Elem().FieldByName(name).UnsafeAddr()))
}
