"""What readers of a consumer have in common."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from nats import errors as nats
from nats.aio.msg import Msg

from .event import Delivery
from .link import Bell, cancellable
from .log import Log

POLL = 0.05  # seconds after which to ask again for what nobody announces


class Reader(ABC):
    """Reads from a consumer: an inbox, and a bell for those who wait for a message or the connection."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.bell = Bell()
        self.inbox: str = log.nc.new_inbox()
        self.failure: Exception | None = None  # why no more messages come
        self._subscription: Any = None
        log.link.bells.add(self.bell)

    @abstractmethod
    async def next(self) -> Delivery | None:
        """Waits for a message; None at the end with which the reader was opened."""

    @abstractmethod
    async def done(self, d: Delivery) -> None:
        """Acknowledges a message."""

    @abstractmethod
    async def close(self) -> None:
        """Returns what is not acknowledged to the server."""

    @abstractmethod
    def receive(self, msg: Msg) -> None:
        """Handles a message, or a status of JetStream."""

    def fail(self, e: Exception) -> None:
        """Ends the reader with an error."""
        self.failure = self.failure or e
        self.bell.ring()

    async def subscribe(self, subject: str) -> None:
        """Receives messages at a subject, and at none of before."""
        self.log.check_open()
        await self._unsubscribe()
        self.log.link.denials[self.fail] = subject
        try:
            with cancellable():
                self._subscription = await self.log.nc.subscribe(subject, cb=self._received)
        except nats.Error:  # the connection drains
            raise self.log.requests.closed() from None

    async def stop(self) -> None:
        """Ends the subscription."""
        self.log.link.bells.discard(self.bell)
        self.log.link.denials.pop(self.fail, None)
        await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        if self._subscription is not None:
            with cancellable(), suppress(nats.Error):  # the connection is closed
                await self._subscription.unsubscribe()

    async def _received(self, msg: Msg) -> None:
        self.receive(msg)
        self.bell.ring()


def now() -> float:
    """Returns seconds of the clock that timers have."""
    return asyncio.get_running_loop().time()


def status_of(msg: Msg) -> tuple[int, str, dict[str, str]]:
    """Returns the code, the text and the headers of a status of JetStream."""
    headers = msg.headers or {}
    return int(headers.get("Status", 0)), headers.get("Description", ""), headers
