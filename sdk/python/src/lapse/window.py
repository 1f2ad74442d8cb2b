"""Which messages of a durable may be handed out, and how many are pulled."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from .event import Delivery

MAX_EVENTS = 500  # received and not yet acknowledged
MAX_BYTES = 16 << 20
_MAX_EVENT = 2 << 20  # bytes of the largest document


@dataclass(frozen=True)
class Inquiry:
    """What the state of the consumer is compared with, which is requested after it. `own` counts messages received with the present pin."""

    first: Delivery
    own: int
    acks: int
    gaps: int


class Window:
    """The messages of a durable's consumer that this reader has received and not yet acknowledged.

    It decides which to hand out; clients in all languages follow one rule. The server pins one
    reader, numbers the deliveries, and repeats a delivery that is not acknowledged in time. A
    message can be missing here although a later one has arrived: a reader that crashed still has
    it, or its delivery was lost on the way. So:

    1. A delivery with another pin, or whose number does not follow the last one, unsettles the
       window.
    2. A settled window hands out its first message.
    3. An unsettled one hands out its first message only if that is the first one that the
       consumer has delivered and not seen acknowledged.
    4. The window is settled when the consumer has no more unacknowledged messages than this
       reader has received with its present pin: then none is missing.

    It is not `pinned` for a consumer of an earlier release, which allows one message in flight.
    """

    def __init__(self, pinned: bool) -> None:
        self.pinned = pinned
        self.settled = not pinned  # no message is missing
        self.ready: list[Delivery] = []  # received and not yet handed out, in order
        self.unacked: dict[int, Delivery] = {}  # received and neither acknowledged nor returned
        self.pin = ""  # of the last delivery
        self._number = 0  # of the last delivery
        self._bytes = 0  # of unacked
        self._acks = 0
        self._gaps = 0
        self._missing = False  # a message that precedes ready is known to be missing

    def add(self, m: Delivery) -> None:
        """Adds a message. A redelivery replaces the earlier delivery."""
        if self.pinned and (m.pin != self.pin or m.number != self._number + 1):
            self.settled = False
            self._gaps += 1
        self.pin, self._number, self._missing = m.pin, m.number, False
        earlier = self.unacked.get(m.seq)
        self.unacked[m.seq] = m
        self._bytes += m.size - (earlier.size if earlier else 0)
        at = bisect_left(self.ready, m.seq, key=lambda r: r.seq)
        if at < len(self.ready) and self.ready[at].seq == m.seq:
            self.ready[at] = m
        elif not earlier:
            self.ready.insert(at, m)

    def take(self) -> Delivery | None:
        """Hands out the first message if the window is settled."""
        return self.ready.pop(0) if self.settled and self.ready else None

    def inquire(self) -> Inquiry | None:
        """Begins a comparison with the state of the consumer; None if there is nothing to hand out."""
        if not self.ready:
            return None
        # Another reader may have acknowledged what was received with an earlier pin.
        own = sum(m.pin == self.pin for m in self.unacked.values())
        return Inquiry(self.ready[0], own, self._acks, self._gaps)

    def settle(self, q: Inquiry, is_first: bool, pending: int) -> Delivery | None:
        """Ends a comparison, and hands out the first message if it may be.

        `is_first` is whether no message before it is unacknowledged, `pending` the consumer's number of unacknowledged messages.
        """
        if q.gaps != self._gaps or not self.ready or self.ready[0].seq != q.first.seq:
            return None  # the window has changed since
        self.settled = pending <= q.own - (self._acks - q.acks)
        self._missing = not self.settled and not is_first
        return None if self._missing else self.ready.pop(0)

    def remove(self, seq: int) -> None:
        """Removes a message that is acknowledged."""
        if m := self.unacked.pop(seq, None):
            self._bytes -= m.size
            self._acks += 1

    def drop(self) -> None:
        """Removes what was not handed out: the server may have given it to another reader."""
        for m in self.ready:
            self.remove(m.seq)
        self.ready, self.settled, self._missing = [], not self.pinned, False
        self._gaps += 1

    def may_pull(self, size: int) -> bool:
        """Reports whether to pull a group now. A missing message needs no space."""
        return self._missing or (len(self.unacked) <= size / 2 and self._bytes < MAX_BYTES)

    def pull(self, size: int) -> dict[str, Any]:
        """Returns the request for a group, which brings no more than may wait here."""
        left = MAX_BYTES - self._bytes
        batch = max(1, min(size, MAX_EVENTS - len(self.unacked)))
        few = max(1, left // _MAX_EVENT)  # as many fit, however large they are
        return {"batch": min(batch, few)} if batch <= few or few < 4 else {"batch": batch, "max_bytes": left}


def next_group(size: int, received: int, bytes: int, redelivered: bool, full: bool) -> int:
    """Returns the size of the next group.

    Groups grow from one message while nothing is redelivered: a message that crashes the
    process again and again is soon alone in flight.
    """
    if redelivered or received == 0:
        return 1 if redelivered else size
    return max(1, min(2 * size if full else size, MAX_EVENTS, MAX_BYTES // (1 + bytes // received)))


def follows(q: Inquiry, floor: dict[str, Any]) -> bool:
    """Reports whether the first message follows the acknowledged ones by its numbers."""
    by_number = q.first.times == 1 and q.first.number == floor["consumer_seq"] + 1
    return q.first.seq == floor["stream_seq"] + 1 or by_number
