"""The log of a database, by the API of JetStream."""

import asyncio
import base64
import json
import re
from contextlib import suppress
from typing import Any

from nats import errors as nats
from nats.aio.msg import Msg

from .errors import LapseError
from .link import cancellable
from .request import Call, Requests

_NO_MESSAGE = 10037
_NO_CONSUMER = 10014


class Refusal(LapseError):
    """What JetStream refused; kind is its own code."""

    def __init__(self, kind: int, code: int, message: str) -> None:
        super().__init__(code, "bad_request" if code == 400 else "unavailable", message)
        self.kind = kind


class Log:
    """Reads the log. prefix is None unless the API is that of another account."""

    def __init__(self, requests: Requests, prefix: str | None) -> None:
        self.requests = requests
        self.nc = requests.nc
        self.link = requests.link
        self.imported = prefix is not None
        self.stream = "LAPSE_" + requests.database
        self.events = f"lapse.{requests.database}.events."
        self.api = f"{(prefix or '$JS.API').removesuffix('.')}."

    async def request(self, verb: str, name: str = "", body: Any = None, timeout: float | None = None, missing: int = 0) -> Any:
        """Sends a request about the log, or about its consumer name, to JetStream.

        Raises a LapseError, or a Refusal. A Refusal of the kind `missing` is None.
        """
        subject = f"{self.api}{verb}.{self.stream}{name and '.' + name}"
        reply = await self.requests.exchange(Call("", "read", body, timeout=timeout), subject, self._read)
        if error := reply.get("error"):
            if error.get("err_code") == missing:
                return None
            raise self._refusal(error)
        return reply

    def _read(self, msg: Msg) -> Any:
        reply = json.loads(msg.data)
        if (error := reply.get("error")) and error["code"] == 503:
            raise self._refusal(error)  # JetStream is away, so it may be asked again; it would repeat other refusals
        return reply

    def _refusal(self, error: dict[str, Any]) -> Refusal:
        kind, code, db = error.get("err_code", 0), error["code"], self.requests.database
        known = {
            10059: f'database "{db}" has no log at {self.api}>: start lapse serve --database {db}, connect to the NATS server and '
            "account that has it, or set api_prefix to the prefix at which this account imports it",
            _NO_CONSUMER: "the consumer of the feed was deleted: continue from the last sequence",
            10026: f"stream {self.stream} has reached its limit of consumers: remove unused ones (nats consumer ls {self.stream}, "
            "nats consumer rm), and try again",
        }
        text = known.get(kind, f"JetStream refused to read the feed: {error.get('description')}")
        return Refusal(kind, 400 if code == 400 and kind not in known else 503, text)

    async def consumer(self, name: str, timeout: float | None = None) -> dict[str, Any] | None:
        """Returns the state of a consumer, None if there is none."""
        info: dict[str, Any] | None = await self.request("CONSUMER.INFO", name, None, timeout, _NO_CONSUMER)
        return info

    async def create_consumer(self, config: dict[str, Any], action: str = "create") -> dict[str, Any]:
        """Creates or updates a consumer."""
        body = {"stream_name": self.stream, "config": config, "action": action}
        info: dict[str, Any] = await self.request("CONSUMER.CREATE", config["name"], body)
        return info

    def check_open(self) -> None:
        """Raises a LapseError if the connection is closed."""
        if self.nc.is_closed:
            raise self.requests.closed()

    async def pull(self, name: str, body: dict[str, Any], reply: str) -> None:
        """Requests messages from a consumer."""
        await self.publish(f"{self.api}CONSUMER.MSG.NEXT.{self.stream}.{name}", json.dumps(body).encode(), reply)

    async def publish(self, subject: str, body: bytes = b"", reply: str = "") -> None:
        """Publishes; what does not fit while the connection is away is lost. Raises a LapseError if it is closed."""
        self.check_open()
        with cancellable(), suppress(nats.Error):
            await self.nc.publish(subject, body, reply)

    async def state(self) -> dict[str, Any]:
        """Returns the bounds of the log, by the leader of the stream: without one, any replica answers."""
        info = await self.request("STREAM.INFO")
        if info.get("cluster") and not info["cluster"].get("leader"):
            raise LapseError(503, "unavailable", f'the log of database "{self.requests.database}" has no leader now: try again')
        state: dict[str, Any] = info["state"]
        return state

    async def get(self, which: dict[str, Any], timeout: float | None = None) -> tuple[int, int | None] | None:
        """Returns the sequence of a message and its log time in milliseconds, which is None if it is no event; None if there is none."""
        found = await self.request("STREAM.MSG.GET", "", which, timeout, _NO_MESSAGE)
        if found is None:
            return None
        message = found["message"]
        time = re.search(rb"^Lapse-Time: *(-?\d+)", base64.b64decode(message.get("hdrs", "")), re.MULTILINE)
        return int(message["seq"]), int(time[1]) if time else None

    async def first_since(self, state: dict[str, Any], ms: int) -> int:
        """Returns the sequence of the first event whose log time is at or later, or the one after the last.

        It bisects: JetStream would search by the machine's clock, from which log time may differ by years.
        """
        low: int = max(state["first_seq"], 1)
        high: int = state["last_seq"] + 1
        while low < high:
            middle = (low + high) // 2
            found = await self.get({"seq": middle, "next_by_subj": ">"})
            while found and found[0] < high and found[1] is None:
                found = await self.get({"seq": found[0] + 1, "next_by_subj": ">"})
            if found is None or found[0] >= high or found[1] is None or found[1] >= ms:
                high = middle
            else:
                low = found[0] + 1
        return low

    async def seqs(self, filters: list[str], which: dict[str, Any], by: str, timeout: float | None = None) -> list[int]:
        """Returns, of each filter that has one, the sequence of the message that `which` and `by` name."""
        found = await asyncio.gather(*(self.get({**which, by: f}, timeout) for f in filters))
        return [m[0] for m in found if m]
