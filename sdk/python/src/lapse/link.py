"""A connection to NATS, and what becomes of it."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from .errors import LapseError


class Lost(Exception):
    """No reply will come to a request that was sent."""


class Bell:
    """Wakes all who wait for it."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Waits until the bell rings, at most some seconds."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait({future}, timeout=seconds)
        finally:
            self._waiting.discard(future)


def denied(text: str) -> LapseError:
    """Returns the error of what NATS does not permit."""
    return LapseError(503, "unavailable", f"NATS does not permit the request ({text}): connect as a user who may", False)


class Link:
    """What is known of a connection, which several databases may share."""

    def __init__(self, nc: Client) -> None:
        self.nc = nc
        self.bells = {bell := Bell()}  # ring when the connection ends or is back
        self.bell = bell
        self.denials: dict[Callable[[LapseError], None], str] = {}  # whom to tell, by subject
        self._calls: set[asyncio.Task[Msg]] = set()
        # nats-py has one callback for each event, and no way to add another.
        for name in ("_disconnected_cb", "_closed_cb"):
            _chain(nc, name, self._ended)
        _chain(nc, "_reconnected_cb", self._ring)
        _chain(nc, "_error_cb", self._failed)

    async def request(self, subject: str, data: bytes, headers: dict[str, str] | None, timeout: float) -> Msg:
        """Sends a request. Raises Lost if the connection ends first, a LapseError if NATS does not permit it, else errors of nats-py."""
        call = asyncio.ensure_future(self.nc.request(subject, data, timeout, headers=headers))
        refusals: list[LapseError] = []

        def refuse(e: LapseError) -> None:
            refusals.append(e)
            call.cancel()

        self._calls.add(call)
        self.denials[refuse] = subject
        try:
            await asyncio.wait({call})
        finally:
            self._calls.discard(call)
            del self.denials[refuse]
            call.cancel()
        if refusals:
            raise refusals[0]
        if call.cancelled():
            raise Lost("the connection ended")
        return call.result()

    def _ended(self) -> None:
        for call in self._calls:
            call.cancel()
        self._ring()

    def _ring(self) -> None:
        for bell in self.bells:
            bell.ring()

    def _failed(self, e: Exception) -> None:
        if match := re.search(r'permissions violation for \w+ to "(.+?)"', str(e)):
            for tell in [tell for tell, subject in self.denials.items() if subject.lower() == match[1]]:
                tell(denied(str(e)))


@contextmanager
def cancellable() -> Iterator[None]:
    """Raises a cancellation in its body that nats-py swallows, as it does while it flushes."""
    task = asyncio.current_task()
    assert task
    before = task.cancelling()
    yield
    if task.cancelling() > before:
        raise asyncio.CancelledError


def _chain(nc: Client, name: str, then: Callable[..., None]) -> None:
    before: Callable[..., Awaitable[None]] | None = getattr(nc, name, None)

    async def callback(*args: Any) -> None:
        then(*args)
        if before is not None:
            await before(*args)

    setattr(nc, name, callback)


def link_of(nc: Client) -> Link:
    """Returns the link of a connection."""
    link: Link | None = getattr(nc, "_lapse_link", None)
    if link is None:
        link = Link(nc)
        setattr(nc, "_lapse_link", link)  # noqa: B010
    return link
