"""The source of a feed whose position the server stores."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from .errors import LapseError
from .event import Delivery, delivery_of
from .log import Log
from .reader import POLL, Reader, now, status_of
from .window import Window, follows, next_group

_GROUP = "readers"  # the priority group of all readers of a durable, of which the server pins one


def consumer_config(name: str, filters: list[str], ack_wait: float | None, begin: int) -> dict[str, Any]:
    """Returns the consumer that the first use of a durable's name makes, to begin at a sequence. ack_wait is in seconds."""
    wait = round((ack_wait or 5) * 1e9)
    return {
        **{"name": name, "durable_name": name, "filter_subjects": filters, "deliver_policy": "by_start_sequence", "opt_start_seq": begin},
        **{"replay_policy": "instant", "ack_policy": "explicit", "ack_wait": wait, "max_ack_pending": 1000},
        **{"priority_policy": "pinned_client", "priority_groups": [_GROUP], "priority_timeout": wait},
    }


async def open_consumer(
    log: Log, name: str, filters: list[str], ack_wait: float | None, begin: Callable[[], Awaitable[int]]
) -> dict[str, Any]:
    """Returns the consumer of a durable. One that exists stays as it is, since another loop may read from it."""
    info = await log.consumer(name)
    if info is None:
        try:
            info = await log.create_consumer(consumer_config(name, filters, ack_wait, await begin()))
        except LapseError:
            info = await log.consumer(name)  # of a concurrent first use
            if info is None:
                raise
    c = info["config"]
    policy = c.get("priority_policy") or "none"
    pinned = policy == "pinned_client" and c.get("priority_groups") == [_GROUP]
    earlier = c.get("max_ack_pending") == 1 and policy == "none"  # of an earlier release
    if c.get("deliver_subject") or c.get("ack_policy") != "explicit" or not (pinned or earlier):
        raise LapseError(400, "bad_request", f'the consumer "{name}" belongs to another program: choose another durable name')
    remove = f"delete the consumer if no loop reads it any more (nats consumer rm {log.stream} {name})"
    had, wanted = " ".join(_filters_of(log, c)), " ".join(_filters_of(log, {"filter_subjects": filters}))
    if had != wanted:
        text = f'the durable "{name}" reads {had}, and this reader selects {wanted}: choose another durable name, or {remove}'
        raise LapseError(400, "bad_request", text)
    if ack_wait is not None and round(ack_wait * 1e9) != c["ack_wait"]:
        text = f'the durable "{name}" has the ack wait {c["ack_wait"] / 1e9:g} s, and this reader asks for {ack_wait:g} s'
        raise LapseError(400, "bad_request", f"{text}: leave ack_wait out, or {remove}")
    return info


def _filters_of(log: Log, config: dict[str, Any]) -> list[str]:
    """Returns the filters of a consumer in one form: an event's subject has two tokens after its prefix."""
    all = config.get("filter_subjects") or [config.get("filter_subject") or log.events + ">"]
    whole = {log.events + "*.*", log.events + ">"}
    return sorted({log.events + ">" if f in whole else f.removesuffix(">") + "*" if f.endswith(">") else f for f in all})


@dataclass
class _Pull:
    """A request for messages, of which `open` may still arrive. `status` is what ended it early."""

    reply: str
    open: int
    received: int = 0
    bytes: int = 0
    redelivered: bool = False
    status: tuple[int, str] | None = None


class Durable(Reader):
    """Pulls messages in groups, ahead of the loop; the window keeps the order of the log.

    `end` is the sequence up to which all is acknowledged when the reader ends. `every` is the
    interval of progress reports, in seconds.
    """

    def __init__(self, log: Log, info: dict[str, Any], end: int | None) -> None:
        super().__init__(log)
        self.name: str = info["name"]
        self.config: dict[str, Any] = info["config"]
        self.window = Window(self.config.get("priority_policy") == "pinned_client")
        self.every: float = self.config["ack_wait"] / 3e9
        self._end = end
        self._ended = False
        self._confirmed = now()  # when the server last knew that this reader has its messages
        self._pull = _Pull("", 0)
        self._pulls = 0
        self._pin = ""
        self._stopped = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Begins to pull."""
        await self.subscribe(self.inbox + ".*")
        self._tasks = [asyncio.create_task(self._guard(task)) for task in (self._pull_groups, self._report)]

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except Exception as e:
            self.fail(e)

    def receive(self, msg: Msg) -> None:
        pull = self._pull
        if d := delivery_of(msg):
            self.window.add(d)
            self._pin = d.pin
            pull.open -= 1
            pull.received += 1
            pull.bytes += d.size
            pull.redelivered = pull.redelivered or d.times > 1
        elif msg.subject == pull.reply:
            code, text, headers = status_of(msg)
            unsent = headers.get("Nats-Pending-Messages")
            if unsent and code != 423:
                pull.open -= int(unsent)  # what was sent may arrive after the status
            else:
                pull.status = (code, text)

    async def _pull_groups(self) -> None:
        """Pulls groups of messages until the reader stops or the consumer fails."""
        size, unanswered = 1, 0.0
        while not self._stopped and not self.failure:
            self.log.check_open()
            if not self.log.nc.is_connected or not self.window.may_pull(size):
                await self.bell.wait()
                continue
            request = self.window.pull(size)
            pull = await self._pull_group(request)
            unanswered = unanswered + POLL if pull.status and pull.status[0] == 503 else 0
            if pull.status:
                await self._check(*pull.status, unanswered > self.log.requests.timeout)
                await asyncio.sleep(POLL)  # the server is unreachable, or another reader is pinned
            full = pull.received >= request["batch"]
            size = next_group(size, pull.received, pull.bytes, pull.redelivered, full) if self.window.pinned else 1
            if pull.received == 0 and self._end is not None:
                info = await self._state()
                self._ended = info is not None and info["ack_floor"]["stream_seq"] >= self._end
                self.bell.ring()

    async def _pull_group(self, request: dict[str, Any]) -> _Pull:
        """Pulls a group, until it is complete or expires, early enough to keep the reader pinned."""
        self._pulls += 1
        self._pull = pull = _Pull(f"{self.inbox}.{self._pulls}", request["batch"])
        group = ({"group": _GROUP, "id": self._pin} if self._pin else {"group": _GROUP}) if self.window.pinned else {}
        body = {**request, "expires": round(self.every * 1.35e9), **group}
        await self.log.pull(self.name, body, pull.reply)
        until = now() + 2 * self.every
        while pull.open > 0 and not pull.status and now() < until and self.log.nc.is_connected and not self._stopped:
            await self.bell.wait(until - now())
        if pull.status and pull.status[0] == 423:
            self._pin = ""
        return pull

    async def _check(self, code: int, text: str, unanswered: bool) -> None:
        """Raises what a status says if it is for good."""
        subject = f"CONSUMER.MSG.NEXT.{self.log.stream}.{self.name}"
        if code == 400:
            raise LapseError(400, "bad_request", f"JetStream refused to read the feed: {text}")
        if "not permitted: " in text:
            why = text.split("not permitted: ")[1]
            raise LapseError(503, "unavailable", f'pulls from the consumer "{self.name}" are refused: {why}')
        if unanswered and self.log.imported:
            how = f"import $JS.API.{subject}, as {self.log.api}{subject}, from the account of the log (a service with response_type stream)"
            raise LapseError(503, "unavailable", f'nobody answers pulls from the consumer "{self.name}": {how}')
        if code != 423:
            await self._state()

    async def _state(self) -> dict[str, Any] | None:
        """Returns the state of the consumer, None if it does not answer."""
        try:
            info = await self.log.consumer(self.name, self.every)
        except LapseError:
            return None
        if info is None:
            self.fail(LapseError(503, "unavailable", f'the consumer "{self.name}" was deleted: continue from the last sequence'))
        return info

    async def next(self) -> Delivery | None:
        while True:
            if now() - self._confirmed > 2 * self.every:
                self.window.drop()  # the server may have given the messages to another reader
                self._confirmed = now()
                self.bell.ring()
            if m := self.window.take() or await self._first():
                return m
            if self.failure:
                raise self.failure
            waits = bool(self.window.ready)
            if not waits and self._ended:
                return None
            await self.bell.wait(POLL if waits else None)

    async def _first(self) -> Delivery | None:
        """Returns the first message of an unsettled window if it may be handed out."""
        q = self.window.inquire()
        info = q and await self._state()
        if not q or not info:
            return None
        floor = info["ack_floor"]
        is_first = follows(q, floor) or await self._is_next(floor["stream_seq"], q.first.seq)
        m = self.window.settle(q, is_first, info["num_ack_pending"])
        self.bell.ring()
        return m

    async def _is_next(self, after: int, seq: int) -> bool:
        """Reports whether seq is the first event after another that the consumer chooses."""
        try:
            found = await self.log.seqs(_filters_of(self.log, self.config), {"seq": after + 1}, "next_by_subj", self.every)
        except LapseError as e:
            if not e.retryable:
                raise
            return False  # it is asked again
        return all(s >= seq for s in found)

    async def _report(self) -> None:
        """Reports all messages as in progress: only a vanished reader loses them."""
        while True:
            at = now()
            for d in list(self.window.unacked.values()):
                await self.log.publish(d.msg.reply, b"+WPI")
            # The reply to a later request shows that the server has the reports.
            if not self.window.unacked or await self._state():
                self._confirmed = at
            await asyncio.sleep(max(0.0, at + self.every - now()))

    async def done(self, d: Delivery) -> None:
        self.window.remove(d.seq)
        await self.log.publish(d.msg.reply, b"+ACK")
        self.bell.ring()

    async def close(self) -> None:
        try:
            until = now() + self.every
            while now() < until and not await self._arrived():  # what is in transit would come again only after the ack wait
                await self.bell.wait(POLL / 10)
        finally:
            self._stopped = True
            for task in self._tasks:
                task.cancel()
            await self.stop()
        if self.log.nc.is_closed:
            return
        try:
            if self.window.pin:  # or the next reader would wait until the pin expires
                await self.log.request("CONSUMER.UNPIN", self.name, {"group": _GROUP}, self.every)
        except LapseError:
            pass  # it expires
        for d in sorted(self.window.unacked.values(), key=lambda d: d.seq):
            await self.log.publish(d.msg.reply, b"-NAK")
        await self._state()  # the server has what was sent, before the process ends

    async def _arrived(self) -> bool:
        """Reports whether all that the server has sent has arrived, unless it may belong to other readers."""
        if not self.window.settled:
            return True
        info = await self._state()
        return info is None or info["num_ack_pending"] <= len(self.window.unacked)
