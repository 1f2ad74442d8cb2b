"""The source of a feed without a stored position."""

import asyncio
import uuid
from collections import deque
from contextlib import suppress
from typing import Any, Literal

from nats.aio.msg import Msg

from .errors import LapseError
from .event import Delivery, delivery_of
from .log import Log, Refusal
from .reader import POLL, Reader, now, status_of
from .window import MAX_BYTES, MAX_EVENTS

_HEARTBEAT = 2  # seconds in which the server reports that a consumer lives
_STANDSTILL = 30  # seconds that a reader with an end waits for its next message
_BATCH, _BYTES = MAX_EVENTS // 2, MAX_BYTES // 2  # of one pull, of which two may be open


class Ordered(Reader):
    """After a gap it makes its consumer again, after the last message.

    In an account that imports the log NATS pushes, since pulls would need an import for each
    name. `end` is the last sequence, if the log has it.
    """

    def __init__(self, log: Log, filters: list[str], begin: int, end: int | None) -> None:
        super().__init__(log)
        self._filters = filters
        self._begin = begin
        self._end = end
        self._consumers = 0

    async def open(self) -> None:
        """Creates a consumer that begins after the last message."""
        self._name = "lapse_reader_" + uuid.uuid4().hex
        self._consumers += 1
        self._arrived: deque[Msg] = deque()
        self._delivered = 0  # by the present consumer
        self._requested = 0  # messages that may still arrive
        self._stalls = 0  # heartbeats since the last message at which the consumer waited for flow control
        await self.subscribe(self._target)  # NATS pushes to exactly this subject
        push = {"deliver_subject": self._target, "flow_control": True, "idle_heartbeat": round(_HEARTBEAT * 1e9)}
        config = {
            **{"name": self._name, "filter_subjects": self._filters, "deliver_policy": "by_start_sequence", "opt_start_seq": self._begin},
            **{"ack_policy": "none", "replay_policy": "instant", "mem_storage": True, "num_replicas": 1, "inactive_threshold": 30 * 10**9},
            **(push if self.log.imported else {}),
        }
        info: dict[str, Any] | None = await self.log.create_consumer(config)
        until = now() + self.log.requests.timeout
        while self.log.imported and not (info and info.get("push_bound")):
            if now() > until:
                inboxes = self.inbox.rsplit(".", 1)[0]
                how = "import that subject as a stream from the account of the log, or connect with the inbox_prefix that is imported"
                raise LapseError(503, "unavailable", f"the log is not delivered to the inboxes of this connection ({inboxes}.>): {how}")
            await asyncio.sleep(POLL)
            info = await self.log.consumer(self._name)

    @property
    def _target(self) -> str:
        return f"{self.inbox}.{self._consumers}"

    def receive(self, msg: Msg) -> None:
        self._arrived.append(msg)

    async def next(self) -> Delivery | None:
        since = now()
        while True:
            step = await self._step() if self.log.nc.is_connected else "lost"
            if isinstance(step, Delivery):
                return step
            self.log.check_open()
            if self.failure:
                raise self.failure
            if self._end is not None and now() - since > _STANDSTILL:
                why = f"nothing came for {_STANDSTILL} s, since the replica that is read lags or is cut off"
                text = f"incomplete: the log was read up to sequence {self._begin - 1} of {self._end}, and {why}"
                raise LapseError(503, "unavailable", f"{text}: try again, or see nats stream info {self.log.stream}")
            if step == "lost":
                await self._reset()

    async def _step(self) -> Delivery | Literal["lost"] | None:
        """Handles what arrived first, or waits for it: returns a message, or that messages may be missing."""
        while not self.log.imported and self._requested <= _BATCH:
            body = {"batch": _BATCH, "max_bytes": _BYTES, "expires": 30 * 10**9, "idle_heartbeat": round(_HEARTBEAT * 1e9)}
            await self.log.pull(self._name, body, self._target)
            self._requested += _BATCH
        if not self._arrived:
            until = now() + _HEARTBEAT * 2.5
            await self.bell.wait(_HEARTBEAT * 2.5)
            return "lost" if now() >= until else None
        msg = self._arrived.popleft()
        d = delivery_of(msg)
        if d is None:
            return await self._control(msg)
        self._delivered += 1
        if d.number != self._delivered:
            return "lost"
        self._requested -= 1
        self._stalls, self._begin = 0, d.seq + 1
        return d

    async def _control(self, msg: Msg) -> Literal["lost"] | None:
        """Handles a message of JetStream itself; returns whether messages may be missing."""
        code, _, headers = status_of(msg)
        stalled, unsent = headers.get("Nats-Consumer-Stalled"), headers.get("Nats-Pending-Messages")
        if int(headers.get("Nats-Last-Consumer") or 0) > self._delivered:
            return "lost"
        if code == 100 and stalled:
            self._stalls += 1
        if self._stalls > 4:
            how = f"import $JS.FC.{self.log.stream}.> from the account of lapse's clients, with a permission to publish there"
            self.fail(LapseError(503, "unavailable", f"the log stops, since flow control is not answered: {how}"))
        elif code == 100 and (stalled or msg.reply):
            await self.log.publish(stalled or msg.reply)  # flow control
        elif code in (408, 409) and unsent:
            self._requested -= int(unsent)  # expired, or the next message exceeds the bytes that remain
        return None if code == 100 or unsent else "lost"

    async def _reset(self) -> None:
        """Makes the consumer again: NATS and lapse restart."""
        await self._delete()
        try:
            await self.open()
        except LapseError as e:
            if isinstance(e, Refusal) and e.code == 400:
                raise
            await asyncio.sleep(_HEARTBEAT / 4)

    async def _delete(self) -> None:
        auditor = ".auditor" if self.inbox.startswith("_INBOX.auditor.") else ""
        with suppress(LapseError):  # it expires
            await self.log.request("CONSUMER.DELETE", self._name + auditor, None, _HEARTBEAT)

    async def done(self, d: Delivery) -> None:
        pass  # it is not stored

    async def close(self) -> None:
        await self.stop()
        await self._delete()
