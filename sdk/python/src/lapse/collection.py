"""A collection of documents."""

from collections.abc import AsyncIterator, Awaitable, Iterable
from datetime import datetime
from typing import Any, Literal, Unpack

from .batch import Op, batch_of, results_of, touch_body
from .errors import LapseError
from .event import event_of
from .item import item_of, lifetime_of, touched_of
from .names import check_collection, token_of
from .query import CountOptions, Query, QueryOptions, read_headers
from .request import Call, Headers, Requests
from .types import Event, Item, Result, Touched, WriteOptions
from .values import Duration, given, ttl_of, unix, whole_seconds, with_ttl


class Collection:
    """A collection: `Database.collection` returns it."""

    def __init__(self, requests: Requests, name: str) -> None:
        check_collection(name)
        self.name = name
        self._requests = requests

    async def get(self, id: str, *, min_seq: int | None = None) -> Item | None:
        """Returns a document, None if it does not live, from a state that has the log sequence min_seq."""
        return await _or_none(self._item("document.get", id, "read", None, read_headers(min_seq)))

    async def create(self, id: str, value: dict[str, Any], **options: Unpack[WriteOptions]) -> Item:
        """Stores a new document. It is a 409 if one of the id lives."""
        return await self._write("document.create", id, value, **options)

    async def upsert(self, id: str, value: dict[str, Any], **options: Unpack[WriteOptions]) -> Item:
        """Creates or replaces a document."""
        return await self._write("document.upsert", id, value, **options)

    async def replace(self, id: str, value: dict[str, Any], **options: Unpack[WriteOptions]) -> Item:
        """Replaces a document. It is a 404 if it does not live."""
        return await self._write("document.replace", id, value, **options)

    async def patch(self, id: str, patch: dict[str, Any], **options: Unpack[WriteOptions]) -> Item:
        """Applies a JSON Merge Patch (RFC 7396), in which None removes a member. It is a 404 if the document does not live."""
        return await self._write("document.patch", id, patch, **options)

    async def delete(self, id: str, *, if_match: str | None = None, msg_id: str | None = None) -> None:
        """Deletes a document. It is a 404 if it does not live."""
        await self._send("document.delete", id, "write", None, _headers(if_match, msg_id))

    async def touch(self, id: str, *, min_age: Duration | None = None, if_match: str | None = None, msg_id: str | None = None) -> Touched:
        """Starts the time to live of a document again, unless it was modified less than min_age ago. It is a 404 if it does not live."""
        body, headers = await self._send("document.touch", id, "write", touch_body(min_age, False), _headers(if_match, msg_id))
        return touched_of(body, lifetime_of(headers))

    async def get_and_touch(
        self, id: str, *, min_age: Duration | None = None, if_match: str | None = None, msg_id: str | None = None
    ) -> Item | None:
        """Does what touch and get do, in one request. It returns None if the document does not live."""
        return await _or_none(self._item("document.touch", id, "write", touch_body(min_age, True), _headers(if_match, msg_id)))

    async def hold(self, id: str, reason: str | None = None) -> None:
        """Keeps a document from expiring and from being deleted until its release."""
        await self._send("document.hold", id, "write", given(reason=reason) or None)

    async def release(self, id: str) -> None:
        """Ends a hold. What is overdue expires at once."""
        await self._send("document.release", id, "write")

    async def restore(self, id: str, version: str | None = None) -> Item:
        """Creates an expired or deleted document again, with the content of a version, by default its last."""
        return await self._item("document.restore", id, "write", given(version=version) or None)

    async def history(self, id: str, *, limit: int | None = None) -> AsyncIterator[Event]:
        """Yields the events of an id, newest first, earlier lives included: all, or up to a limit. It is a 404 if there are none."""
        cursor: str | None = None
        while True:
            asked = None if limit is None else min(limit, 1000)
            page, _ = await self._send("history", id, "read", given(limit=asked, cursor=cursor) or None)
            for line in page["events"]:
                yield event_of(line)
            if limit is not None:
                limit -= len(page["events"])
            cursor = page.get("cursor")
            if not cursor or limit == 0:
                return

    async def batch(self, operations: Iterable[Op], *, atomic: bool = False) -> list[Result]:
        """Sends operations together. Each succeeds or fails on its own; all changes do if atomic."""
        all = list(operations)
        reply = await self._requests.ask(Call(f"api.batch.{self.name}", "once", batch_of(all, atomic)))
        return results_of(all, reply["results"])

    def query(self, **options: Unpack[QueryOptions]) -> Query:
        """Returns the documents that match, which are read page by page as a loop needs them."""
        return Query(self._requests, self.name, options)

    async def count(self, **options: Unpack[CountOptions]) -> int:
        """Counts the documents that match."""
        return await Query(self._requests, self.name, options).count()

    async def forecast(
        self,
        *,
        next: Duration | None = None,
        bucket: Duration | None = None,
        default_ttl: Duration | None = None,
        min_seq: int | None = None,
    ) -> dict[str, Any]:
        """Counts the documents by the time at which they expire.

        It looks ahead as far as `next`, by default a day, counts in steps of `bucket`, and as if
        the collection had `default_ttl`. The result is as lapse replies it, in unix seconds.
        """
        body = given(
            next=None if next is None else whole_seconds(next),
            bucket=None if bucket is None else whole_seconds(bucket),
            defaultTtl=ttl_of(default_ttl),
        )
        forecast: dict[str, Any] = await self._requests.ask(Call(f"api.forecast.{self.name}", "read", body, read_headers(min_seq)))
        return forecast

    async def _write(
        self,
        op: str,
        id: str,
        value: dict[str, Any],
        *,
        ttl: Duration | None = None,
        expire_at: datetime | None = None,
        keep_deadline: bool = False,
        if_match: str | None = None,
        msg_id: str | None = None,
    ) -> Item:
        headers = _headers(if_match, msg_id)
        headers["Lapse-Expire-At"] = None if expire_at is None else str(unix(expire_at))
        headers["Lapse-Keep-Deadline"] = "true" if keep_deadline else None
        return await self._item(op, id, "write", with_ttl(value, ttl), headers)

    async def _item(self, *args: Any) -> Item:
        body, headers = await self._send(*args)
        return item_of(body, lifetime_of(headers))

    async def _send(
        self, op: str, id: str, kind: Literal["read", "write"], body: Any = None, headers: Headers | None = None
    ) -> tuple[Any, dict[str, str]]:
        return await self._requests.send(Call(f"api.{op}.{self.name}.{token_of(id)}", kind, body, headers or {}))


def _headers(if_match: str | None, msg_id: str | None) -> Headers:
    return {"If-Match": if_match, "Nats-Msg-Id": msg_id}


async def _or_none(result: Awaitable[Item]) -> Item | None:
    try:
        return await result
    except LapseError as e:
        if e.error == "document_not_found":
            return None
        raise
