"""Requests to a database, and their replies."""

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from nats import errors as nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from .errors import LapseError
from .link import Link, Lost, link_of
from .values import dumps

R = TypeVar("R")
Headers = dict[str, str | None]

_RESEND = 2.5  # seconds after which a write without a reply is sent again
_PAUSE = 0.1  # seconds before a request whose reply was lost is sent again
_NAMES = {400: "bad_request", 412: "precondition_failed", 413: "too_large", 424: "failed_dependency", 429: "overloaded", 504: "timeout"}


@dataclass
class Call:
    """A request to a database.

    `tail` is the subject after `lapse.<db>.`. `kind` is how often it may be applied: writes are
    sent again under one id, what is `once` never is. `body` is JSON. `timeout` is in seconds, by
    default that of the database.
    """

    tail: str
    kind: Literal["read", "write", "once"]
    body: Any = None
    headers: Headers = field(default_factory=dict)
    timeout: float | None = None


class Requests:
    """Sends requests to one database. timeout is in seconds."""

    def __init__(self, nc: Client, database: str, timeout: float, read_your_writes: bool) -> None:
        self.nc = nc
        self.link: Link = link_of(nc)
        self.database = database
        self.timeout = timeout
        self.read_your_writes = read_your_writes
        self._seq = 0  # the highest one of a reply

    async def send(self, call: Call) -> tuple[Any, dict[str, str]]:
        """Sends a request and returns the body and the headers of its reply. Raises a LapseError if it is refused."""
        return await self.exchange(call, f"lapse.{self.database}.{call.tail}", lambda m: self._reply_of(call, m))

    async def ask(self, call: Call) -> Any:
        """Sends a request and returns the body of its reply."""
        return (await self.send(call))[0]

    async def exchange(self, call: Call, subject: str, read: Callable[[Msg], R]) -> R:
        """Sends a request to a subject and returns what read makes of the reply, which may raise a LapseError."""
        now = asyncio.get_running_loop().time
        until = now() + (call.timeout or self.timeout)
        data = b"" if call.body is None else dumps(call.body)
        headers = self._headers_of(call)
        sent = False  # an earlier attempt may have been applied
        waited = False  # the connection was away, and so the process that serves may be
        while True:
            try:
                while not self.nc.is_connected and not self.nc.is_closed:
                    waited = True
                    if now() >= until:
                        raise LapseError(504, "timeout", "the connection to NATS did not come back in time: try again")
                    await self.link.bell.wait(until - now())
                left = max(0.001, until - now())
                return read(await self._attempt(subject, data, headers, min(left, _RESEND) if call.kind == "write" else left))
            except (Lost, LapseError) as e:
                lost = isinstance(e, Lost)
                sent = sent or lost
                retryable = not isinstance(e, LapseError) or e.retryable
                again = retryable and call.kind != "once" and (sent or waited) and not self.nc.is_closed
                if not again or now() + _PAUSE >= until:
                    raise self._unanswered(call.kind) if lost or (again and sent) else e from None
            await self.link.bell.wait(_PAUSE)

    async def _attempt(self, subject: str, data: bytes, headers: dict[str, str] | None, timeout: float) -> Msg:
        try:
            return await self.link.request(subject, data, headers, timeout)
        except nats.NoRespondersError:
            db = self.database
            raise LapseError(
                503,
                "unavailable",
                f'no process serves database "{db}" here now: try again if a standby is taking over, or start lapse serve '
                f"--database {db}, or connect to the NATS server and account that has it",
            ) from None
        except nats.MaxPayloadError:
            raise self._too_large() from None
        except (nats.ConnectionClosedError, nats.ConnectionDrainingError):
            raise self.closed() from None
        except nats.Error as e:
            raise Lost(str(e)) from None

    def closed(self) -> LapseError:
        """Returns the error of a closed connection."""
        if "maximum payload" in str(self.nc.last_error):
            return self._too_large()  # NATS ends the connection of a user who sends more than is allowed
        return LapseError(503, "unavailable", "the connection to NATS is closed: connect again")

    def _too_large(self) -> LapseError:
        text = f"the request exceeds max_payload of this connection ({self.nc.max_payload} bytes): send less at once"
        return LapseError(413, "too_large", text)

    def _unanswered(self, kind: str) -> LapseError:
        if self.nc.is_closed and (closed := self.closed()).code == 413:
            return closed
        message = f'no answer from database "{self.database}" in time, or it was lost with the connection'
        if kind == "once":
            text = f"{message}: read what it may have changed before you send it again, since it may have been applied"
            return LapseError(504, "timeout", text, False)
        return LapseError(504, "timeout", f"{message}: try again{'; the write may have been applied' if kind == 'write' else ''}")

    def _headers_of(self, call: Call) -> dict[str, str] | None:
        headers = {name: value for name, value in call.headers.items() if value is not None}
        if self.read_your_writes and self._seq > int(headers.get("Lapse-Min-Seq", 0)):
            headers["Lapse-Min-Seq"] = str(self._seq)
        if call.kind == "write":
            headers.setdefault("Nats-Msg-Id", uuid.uuid4().hex)
        return headers or None

    def _reply_of(self, call: Call, msg: Msg) -> tuple[Any, dict[str, str]]:
        headers = msg.headers or {}
        status = int(headers.get("Lapse-Status") or headers.get("Nats-Service-Error-Code") or 0)
        if not status:
            text = "the first reply is not from lapse, since it has no Lapse-Status header: stop the other responder"
            raise LapseError(504, "timeout", f"{text}; a write may have been applied")
        if status >= 400:
            refused = error_of(status, _refusal(msg.data), headers.get("Nats-Service-Error", ""))
            raise self._unanswered(call.kind) if status == 504 and call.kind == "once" else refused
        self._seq = max(self._seq, int(headers.get("Lapse-Seq") or 0))
        return json.loads(msg.data) if msg.data else None, headers


def error_of(status: int, body: dict[str, Any], fallback: str = "") -> LapseError:
    """Returns the error of a reply, or of an operation in a batch."""
    name = _NAMES.get(status) or ("unavailable" if status >= 500 else f"status_{status}")
    return LapseError(status, body.get("error") or name, body.get("message") or fallback)


def _refusal(data: bytes) -> dict[str, Any]:
    """Returns the body of an error, {} where the service framework has refused the request, without one."""
    try:
        body = json.loads(data)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
