"""Feeds: the events of the log, in their order."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from .durable import Durable, open_consumer
from .errors import LapseError
from .event import Delivery, decode_event
from .log import Log
from .names import check_collection
from .ordered import Ordered
from .reader import Reader
from .types import Event
from .values import EPOCH, Duration, check_moment, seconds

_TYPES = (
    *("CollectionCreated", "CollectionReplaced", "CollectionDeleted", "DocumentCreated", "DocumentReplaced", "DocumentDeleted"),
    *("DocumentExpired", "DocumentTouched", "DocumentExpiring", "DocumentHeld", "DocumentReleased", "MutationRejected"),
)


def _bad_request(text: str) -> LapseError:
    return LapseError(400, "bad_request", text)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The options of a feed. Raises ValueError for a moment or length of time that can't be, else a LapseError."""

    durable: str | None = None
    collection: str | None = None
    types: list[str] | None = None
    from_: int | datetime | Literal["start"] | None = None
    until: int | datetime | Literal["now"] | None = None
    ack_wait: Duration | None = None

    def __post_init__(self) -> None:
        for bound, word in ((self.from_, "start"), (self.until, "now")):
            if isinstance(bound, datetime):
                check_moment(bound)
            elif bound is not None and bound != word and (type(bound) is not int or bound < 0):
                raise ValueError(f'{bound!r} is no sequence, no datetime and not "{word}"')
        if self.ack_wait is not None and not 1 <= seconds(self.ack_wait) <= 3600:
            raise ValueError(f"ack wait {self.ack_wait!r}: use 1 s to 1 h")
        if self.durable is not None and not re.fullmatch(r"[^\s.*>/\\]+", self.durable):
            raise _bad_request("the durable name is not legal: use letters, digits, _ and -")
        if self.collection is not None and self.collection != "_invalid":
            check_collection(self.collection)
        for type_ in self.types or ():
            if type_ not in _TYPES:
                raise _bad_request(f"unknown event type {json.dumps(type_)}: use {', '.join(_TYPES)}")

    def filters(self, log: Log) -> list[str]:
        """Returns the subjects of the chosen events."""
        if self.collection is None and not self.types:
            return [log.events + ">"]
        return [f"{log.events}{self.collection or '*'}.{t}" for t in sorted(set(self.types or ["*"]))]

    def has(self, e: Event) -> bool:
        """Reports whether the filters choose an event."""
        return (not self.types or e.type in self.types) and self.collection in (None, e.collection)

    async def begin(self, log: Log) -> int:
        """Returns the first sequence of a feed without a stored position."""
        if self.from_ == "start":
            return 1
        state = await log.state()
        if isinstance(self.from_, datetime):
            return await log.first_since(state, -((EPOCH - self.from_) // timedelta(milliseconds=1)))
        following: int = state["last_seq"] + 1
        if self.from_ is not None and self.from_ > following:
            end = f'sequence {self.from_} is beyond the end of the log of database "{log.requests.database}", which is {following - 1}'
            how = f"begin with at most {following}, or query the live documents and begin from now"
            raise _bad_request(f"{end}: the position is from another log, or from before a restore; {how}")
        return max(following if self.from_ is None else self.from_, 1)

    async def consumer(self, log: Log) -> dict[str, Any]:
        """Returns the consumer of the durable."""
        wait = None if self.ack_wait is None else seconds(self.ack_wait)
        return await open_consumer(log, self.durable or "", self.filters(log), wait, lambda: self.begin(log))


class Feed:
    """Events, by `async with` and `async for`. Its end leaves the present event of a durable to the next reader."""

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __aenter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __aexit__(self, *_: object) -> None:
        await self._events.aclose()


async def open_feed(log: Log, choice: Choice) -> tuple[Reader, int | None] | None:
    """Opens a feed and returns its reader and last sequence, if it has one; None if it is empty."""
    end = choice.until if isinstance(choice.until, int) else None
    stop = None  # where a reader knows that it ends
    if choice.until == "now":
        end = stop = max(await log.seqs(choice.filters(log), {}, "last_by_subj"), default=0)
    if end == 0:
        return None
    reader: Durable | Ordered
    if choice.durable is not None:
        info = await choice.consumer(log)
        if stop is not None and info["ack_floor"]["stream_seq"] >= stop:
            return None
        reader = Durable(log, info, stop)
    else:
        first = await choice.begin(log)
        if stop is not None and first > stop:
            return None
        reader = Ordered(log, choice.filters(log), first, stop)
    try:
        await reader.open()
    except BaseException:
        await reader.close()
        raise
    return reader, end


async def read(choice: Choice, reader: Reader, end: int | None) -> AsyncIterator[tuple[Event, Delivery]]:
    """Reads a feed up to its end. Its caller acknowledges the deliveries, and closes the reader."""
    seq = 0
    while end is None or seq < end:
        d = await reader.next()
        if d is None or (end is not None and d.seq > end):
            return
        seq = d.seq
        event = decode_event(d)
        if event and isinstance(choice.until, datetime) and event.time > choice.until:
            return
        if event and not choice.has(event):
            text = f"the feed received event {seq}, a {event.type} of {event.collection}, which its options exclude"
            how = f'was the filter of consumer "{choice.durable}" changed? Use one durable name for each choice of events'
            raise _bad_request(f"{text}: {how}")
        if event and not (isinstance(choice.from_, datetime) and event.time < choice.from_):
            yield event, d
        else:
            await reader.done(d)


async def changes(log: Log, choice: Choice) -> AsyncGenerator[Event, None]:
    """Reads a feed in a loop, which acknowledges an event when it asks for the next one."""
    feed = await open_feed(log, choice)
    if feed is None:
        return
    reader, end = feed
    try:
        async for event, d in read(choice, reader, end):
            yield event
            await reader.done(d)
    finally:
        await reader.close()
