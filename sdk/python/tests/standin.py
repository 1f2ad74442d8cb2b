"""A stand-in of a connection to NATS."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lapse


@dataclass
class Sent:
    """A request as a stand-in sees it."""

    subject: str
    body: Any
    headers: dict[str, str]


@dataclass
class Message:
    data: bytes
    headers: dict[str, str] | None
    subject: str = ""
    reply: str = ""


class StandIn:
    """A connection that answers each request as `answer` says: by a dict of headers and body, or an exception; None is no answer."""

    is_connected = True
    is_closed = False
    last_error: Exception | None = None
    max_payload = 1024

    def __init__(self, answer: Callable[[Sent, int], Any]) -> None:
        self.answer = answer
        self.sent: list[Sent] = []
        self.received = asyncio.Event()
        self.published: asyncio.Future[Any] = asyncio.get_running_loop().create_future()  # the first body that is published

    def database(self, **options: Any) -> lapse.Database:
        return lapse.Database(self, **options)

    async def request(self, subject: str, payload: bytes = b"", timeout: float = 0, headers: dict[str, str] | None = None) -> Message:
        sent = Sent(subject, json.loads(payload) if payload else None, headers or {})
        self.sent.append(sent)
        self.received.set()
        answer = self.answer(sent, len(self.sent))
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return Message(answer.get("body", "").encode(), answer["headers"])

    async def event(self, name: str, *args: Any) -> None:
        """Tells what happened to the connection, as nats-py does."""
        await getattr(self, f"_{name}_cb")(*args)

    def new_inbox(self) -> str:
        return "_INBOX.a"

    async def subscribe(self, subject: str, cb: Any) -> None:
        return None

    async def publish(self, subject: str, payload: bytes, reply: str) -> None:
        if not self.published.done():
            self.published.set_result(json.loads(payload))


def reply(status: int, body: str = "") -> dict[str, Any]:
    return {"headers": {"Lapse-Status": str(status), "Lapse-Seq": "7"}, "body": body}
