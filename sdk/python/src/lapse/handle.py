"""Handlers of a feed's events, and how often an event is tried."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from .durable import Durable
from .errors import LapseError
from .event import Delivery
from .feed import Choice, open_feed, read
from .log import Log, Refusal
from .types import Event

Handler = Callable[[Event], Awaitable[object]]
Poison = tuple[int, Callable[[Event, BaseException], Awaitable[object]]]

_FIRST_RETRY, _LAST_RETRY = 0.1, 10.0  # seconds between the tries of a handler, each twice the one before
_METADATA = "lapse.tries"  # the key of the consumer's metadata with the tries of its first event


def tries_of(text: str | None, seq: int, times: int, limit: int) -> tuple[int, bool]:
    """Returns how many tries of an event failed, at most limit, and whether the last one ended with its process.

    A delivery is no try, since an event may be delivered to readers that end before they handle
    it. A reader that finds a running try knows that its process crashed. Without an entry the
    event had one try at most, in its first delivery; only a crash that is certain puts an event
    aside without another try.
    """
    try:
        t: dict[str, Any] = json.loads(text or "{}")
    except ValueError:
        t = {}
    if times <= 1:
        return 0, False
    same = t.get("seq") == seq
    failed = t.get("failed", 0)
    if same and t.get("running"):
        return failed + 1, True
    return min(failed if same else 1, limit - 1), False


class _Counter:
    """Counts the tries of a durable's events up to a limit, in the metadata of its consumer; without a limit, only here."""

    def __init__(self, durable: Durable, limit: int | None) -> None:
        self._durable = durable
        self._limit = limit or 0
        self.first: int | None = None  # the first event that was handed out: those after it were only delivered with it
        self.failed: dict[int, int] = {}

    def _records(self, d: Delivery) -> bool:
        return self._limit > 0 and d.seq == self.first and d.times > 1

    async def begin(self, d: Delivery) -> tuple[int, BaseException | None]:
        """Returns the tries of an event that failed before this process, and the error of the last one if it is certain."""
        info = None
        if self._records(d):
            with suppress(LapseError):
                info = await self._durable.log.consumer(self._durable.name, self._durable.every)
        if info is None:
            return 0, None
        failed, crashed = tries_of((info["config"].get("metadata") or {}).get(_METADATA), d.seq, d.times, self._limit)
        self.failed[d.seq] = failed
        text = f"event {d.seq}: the process ended while its handler ran, in try {failed} of {self._limit}"
        return failed, RuntimeError(text) if crashed else None

    async def begin_try(self, d: Delivery, failed: int) -> BaseException | None:
        """Notes that a try begins. Returns an error if that can't be written, and the event was delivered too often."""
        if not self._records(d):
            return None
        try:
            await self._write({"seq": d.seq, "failed": failed, "running": True})
        except LapseError as e:
            if d.times > self._limit and ((isinstance(e, Refusal) and e.code == 400) or not e.retryable):
                text = f"event {d.seq} was delivered {d.times} times, and its tries cannot be counted: this user may not edit the consumer"
                return RuntimeError(text)
        return None

    async def end(self) -> None:
        """Writes the tries of the event with which the next reader begins, without one that was interrupted."""
        if self._limit and self._durable.window.unacked:
            seq = min(self._durable.window.unacked)
            with suppress(LapseError):  # or it is tried once more
                await self._write({"seq": seq, "failed": self.failed.get(seq, 0)})

    async def _write(self, tries: dict[str, Any]) -> None:
        log, name = self._durable.log, self._durable.name
        if info := await log.consumer(name, self._durable.every):
            metadata = {**(info["config"].get("metadata") or {}), _METADATA: json.dumps(tries, separators=(",", ":"))}
            await log.create_consumer({**info["config"], "name": name, "metadata": metadata}, "update")


class _Handling:
    """Handles the events of one feed. Those of one document are handled in order, one after another."""

    def __init__(self, reader: Durable, handler: Handler, workers: int, poison: Poison | None) -> None:
        self._reader = reader
        self._handler = handler
        self._tries: float = poison[0] if poison else math.inf
        self._other = poison and poison[1]
        self._slots = asyncio.Semaphore(workers)
        self._lanes: dict[tuple[str, str | None], asyncio.Task[None]] = {}  # by document, until its last event is handled
        self.counter = _Counter(reader, poison and poison[0])

    async def run(self, choice: Choice, end: int | None) -> None:
        async with asyncio.TaskGroup() as group:
            async for event, d in read(choice, self._reader, end):
                self.counter.first = self.counter.first or d.seq
                key = (event.collection, event.id)
                alone = event.id is None
                before = set(self._lanes.values()) if alone else {self._lanes[key]} if key in self._lanes else set()
                lane = self._lanes[key] = group.create_task(self._lane(before, event, d))
                lane.add_done_callback(lambda lane, key=key: self._lanes.get(key) is lane and self._lanes.pop(key))  # type: ignore[misc]
                if alone:
                    await asyncio.wait({lane})

    async def _lane(self, before: set[asyncio.Task[None]], event: Event, d: Delivery) -> None:
        if before:
            await asyncio.wait(before)
        async with self._slots:
            await self._handle(event, d)
        await self._reader.done(d)

    async def _handle(self, event: Event, d: Delivery) -> None:
        """Calls the handler until it returns, or the poison handler after its last try."""
        failed, error = await self.counter.begin(d)
        retry = _FIRST_RETRY
        while failed < self._tries:
            error = await self.counter.begin_try(d, failed)
            if error:
                break
            try:
                await self._handler(event)
                break
            except (Exception, asyncio.CancelledError) as e:
                if (task := asyncio.current_task()) and task.cancelling():
                    raise  # the end of the feed is no failure of the event
                error = e
            failed += 1
            self.counter.failed[d.seq] = failed
            if failed < self._tries:
                await asyncio.sleep(retry)
                retry = min(2 * retry, _LAST_RETRY)
        if self._other and error:
            await self._other(event, error)
        self.counter.failed.pop(d.seq, None)


async def handle(log: Log, handler: Handler, choice: Choice, workers: int, poison: Poison | None) -> None:
    """Calls a handler for each event of a feed, and acknowledges the event when it has returned. See Database.handle."""
    if choice.durable is None:
        raise TypeError("handle needs durable, the name under which the position is kept")
    for n, most, what in ((workers, 1000, "workers"), (poison[0] if poison else 1, None, "tries")):
        if type(n) is not int or n < 1 or (most and n > most):
            raise LapseError(400, "bad_request", f"{n} {what}: use 1 {f'to {most}' if most else 'or more'}")
    feed = await open_feed(log, choice)
    if feed is None:
        return
    reader, end = feed
    assert isinstance(reader, Durable)
    handling = _Handling(reader, handler, workers, poison)
    try:
        await handling.run(choice, end)
    except BaseExceptionGroup as e:
        raise e.exceptions[0] from None
    finally:
        try:
            await handling.counter.end()
        finally:
            await reader.close()
