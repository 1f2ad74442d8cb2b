package schema

// EventType is the type of an event.
type EventType uint8

const (
	NoEvent EventType = iota
	CollectionCreated
	CollectionReplaced
	CollectionDeleted
	DocumentCreated
	DocumentReplaced
	DocumentDeleted
	DocumentExpired
	MutationRejected

	// Internal events, to be ignored by readers.
	WriterStarted    // a new writer moved the fence
	MutationRepeated // a mutation repeated an earlier Nats-Msg-Id, or a touch renewed nothing
	LogPadded        // padding, so that the store begins a new file
	LogTrimmed       // the log was trimmed at its beginning
	WriterPresent    // a writer was idle for long
	WriterResumed    // a writer resumed after it could decide nothing

	// Append new types at the end: the number of a type is part of the hash of a log.
	DocumentTouched
	DocumentHeld
	DocumentReleased
	DocumentExpiring

	endOfTypes
)

// EventTypes is the number of types, NoEvent included.
const EventTypes = int(endOfTypes)

// property is a set of properties of an event type. A property says what folding, timers
// and readers have to do at an event. So a new type needs a row of eventTypes and not a
// case in each switch.
type property uint16

const (
	// What the event is about: one of these, or only a mutation.
	internal property = 1 << iota
	onCollection
	onDocument

	// What becomes of the content of the document: one of these.
	makesContent
	keepsContent
	endsContent

	makesVersion // of the document
	startsTTL    // the document may get a deadline
	renews       // the document may lose its deadline, or get a later one

	// Fields of the event. A body may be there unless one of the last two says more.
	withPrevious // the version that it ends, or is about
	withDeadline // with ttl and rule
	withRestored // the version restored
	withContent  // the version with the content
	withBody
	withoutBody
)

// eventTypes has the name and the properties of each type. All code asks these properties,
// except where it does what only this type needs.
var eventTypes = [EventTypes]struct {
	name       string
	properties property
}{
	CollectionCreated:  {"CollectionCreated", onCollection},
	CollectionReplaced: {"CollectionReplaced", onCollection},
	CollectionDeleted:  {"CollectionDeleted", onCollection},
	DocumentCreated:    {"DocumentCreated", onDocument | makesContent | makesVersion | startsTTL | withRestored | withBody},
	DocumentReplaced:   {"DocumentReplaced", onDocument | makesContent | makesVersion | startsTTL | renews | withPrevious | withBody},
	DocumentTouched:    {"DocumentTouched", onDocument | keepsContent | makesVersion | startsTTL | renews | withPrevious | withContent | withoutBody},
	DocumentHeld:       {"DocumentHeld", onDocument | keepsContent | renews | withPrevious | withBody},
	DocumentReleased:   {"DocumentReleased", onDocument | keepsContent | startsTTL | withPrevious | withBody},
	DocumentExpiring:   {"DocumentExpiring", onDocument | keepsContent | withPrevious | withDeadline},
	DocumentExpired:    {"DocumentExpired", onDocument | endsContent | withPrevious | withDeadline},
	DocumentDeleted:    {"DocumentDeleted", onDocument | endsContent | withPrevious},
	MutationRejected:   {"MutationRejected", withBody},
	WriterStarted:      {"WriterStarted", internal},
	MutationRepeated:   {"MutationRepeated", internal},
	LogPadded:          {"LogPadded", internal},
	LogTrimmed:         {"LogTrimmed", internal},
	WriterPresent:      {"WriterPresent", internal},
	WriterResumed:      {"WriterResumed", internal},
}

// is reports whether t has property p.
func (t EventType) is(p property) bool { return eventTypes[t].properties&p != 0 }

func (t EventType) String() string { return eventTypes[t].name }

// OnCollection reports whether t is an event of a collection as a whole.
func (t EventType) OnCollection() bool { return t.is(onCollection) }

// OnDocument reports whether t is an event of a document.
func (t EventType) OnDocument() bool { return t.is(onDocument) }

// Internal reports whether t is an internal event, which readers ignore.
func (t EventType) Internal() bool { return t.is(internal) }

// HasDeadline reports whether an event of type t has a Deadline: these are the events that
// time causes, not a mutation.
func (t EventType) HasDeadline() bool { return t.is(withDeadline) }

// MakesVersion reports whether an event of type t creates a version of its document.
func (t EventType) MakesVersion() bool { return t.is(makesVersion) }

// KeepsContent reports whether an event of type t leaves the content of its document as it
// is. Other events of documents have the content that they make or end in their body; those
// that end it only with previousImages.
func (t EventType) KeepsContent() bool { return t.is(keepsContent) }

// EndsDocument reports whether the document does not exist after an event of type t.
func (t EventType) EndsDocument() bool { return t.is(endsContent) }

// StartsTTL reports whether a document may have another deadline after an event of type t
// than before, or its first.
func (t EventType) StartsTTL() bool { return t.is(startsTTL) }

// Renews reports whether an event of type t may keep a document beyond the deadline that it
// had before.
func (t EventType) Renews() bool { return t.is(renews) }

// ParseEventType is the inverse of EventType.String; NoEvent for anything else.
func ParseEventType(s string) EventType {
	for t := range endOfTypes {
		if eventTypes[t].name == s {
			return t
		}
	}
	return NoEvent
}

// EventNames returns the names of the types that readers see: all but the internal ones.
func EventNames() (names []string) {
	for t := NoEvent + 1; t < endOfTypes; t++ {
		if !t.Internal() {
			names = append(names, t.String())
		}
	}
	return names
}
