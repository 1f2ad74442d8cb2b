"""A collection of documents."""

from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any, Unpack

from .batch import Op, batch_of, result_of
from .errors import LapseError
from .event import event_of
from .item import item_of, lifetime_of
from .names import check_collection, token_of
from .query import CountOptions, Query, QueryOptions, check, filter_of, read_headers
from .request import Call, Requests
from .types import Event, Item, Result, Touched, WriteOptions
from .values import Duration, given, moment_of, ttl_of, whole_seconds

_HEADERS = {"ifMatch": "If-Match", "expireAt": "Lapse-Expire-At", "keepDeadline": "Lapse-Keep-Deadline"}


class Collection:
    """A collection: `Database.collection` returns it. A repeat of a write with the same `msg_id` within two minutes changes nothing."""

    def __init__(self, requests: Requests, name: str) -> None:
        check_collection(name)
        self.name = name
        self._requests = requests

    async def get(self, id: str, *, min_seq: int | None = None) -> Item | None:
        """Returns a document, None if it does not live, from a state that has the log sequence min_seq."""
        call = Call(f"api.document.get.{self.name}.{token_of(id)}", "read", None, read_headers(min_seq))
        return await _or_none(self._item(call))

    async def create(self, id: str, value: dict[str, Any], *, msg_id: str | None = None, **options: Unpack[WriteOptions]) -> Item:
        """Stores a new document. It is a 409 if one of the id lives."""
        return await self._item(self._call(Op.create(id, value, **options), msg_id))

    async def upsert(self, id: str, value: dict[str, Any], *, msg_id: str | None = None, **options: Unpack[WriteOptions]) -> Item:
        """Creates or replaces a document."""
        return await self._item(self._call(Op.upsert(id, value, **options), msg_id))

    async def replace(self, id: str, value: dict[str, Any], *, msg_id: str | None = None, **options: Unpack[WriteOptions]) -> Item:
        """Replaces a document. It is a 404 if it does not live."""
        return await self._item(self._call(Op.replace(id, value, **options), msg_id))

    async def patch(self, id: str, patch: dict[str, Any], *, msg_id: str | None = None, **options: Unpack[WriteOptions]) -> Item:
        """Applies a JSON Merge Patch (RFC 7396), in which None removes a member. It is a 404 if the document does not live."""
        return await self._item(self._call(Op.patch(id, patch, **options), msg_id))

    async def delete(self, id: str, *, if_match: str | None = None, msg_id: str | None = None) -> None:
        """Deletes a document. It is a 404 if it does not live."""
        await self._requests.send(self._call(Op.delete(id, if_match=if_match), msg_id))

    async def touch(self, id: str, *, min_age: Duration | None = None, if_match: str | None = None, msg_id: str | None = None) -> Touched:
        """Starts the time to live of a document again, unless it was modified less than min_age ago. It is a 404 if it does not live."""
        body, headers = await self._requests.send(self._call(Op.touch(id, min_age=min_age, if_match=if_match), msg_id))
        return Touched(body["id"], body["_etag"], moment_of(body["_ts"]), **lifetime_of(headers))

    async def get_and_touch(
        self, id: str, *, min_age: Duration | None = None, if_match: str | None = None, msg_id: str | None = None
    ) -> Item | None:
        """Does what touch and get do, in one request. It returns None if the document does not live."""
        return await _or_none(self._item(self._call(Op.touch(id, min_age=min_age, content=True, if_match=if_match), msg_id)))

    async def hold(self, id: str, reason: str | None = None) -> None:
        """Keeps a document from expiring and from being deleted until its release."""
        await self._requests.send(self._call(Op.hold(id, reason)))

    async def release(self, id: str) -> None:
        """Ends a hold. What is overdue expires at once."""
        await self._requests.send(self._call(Op.release(id)))

    async def restore(self, id: str, version: str | None = None) -> Item:
        """Creates an expired or deleted document again, with the content of a version, by default its last."""
        return await self._item(self._call(Op.restore(id, version)))

    async def history(self, id: str, *, limit: int | None = None) -> AsyncIterator[Event]:
        """Yields the events of an id, newest first, earlier lives included: all, or up to a limit. It is a 404 if there are none."""
        cursor: str | None = None
        while True:
            body = given(limit=None if limit is None else min(limit, 1000), cursor=cursor)
            page = await self._requests.ask(Call(f"api.history.{self.name}.{token_of(id)}", "read", body or None))
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
        return [result_of(o, r) for o, r in zip(all, reply["results"], strict=True)]

    def query(self, **options: Unpack[QueryOptions]) -> Query:
        """Returns the documents that match, which are read page by page as a loop needs them."""
        return Query(self._requests, self.name, options)

    async def count(self, **options: Unpack[CountOptions]) -> int:
        """Counts the documents that match."""
        check(options, CountOptions)
        call = Call(f"api.query.{self.name}", "read", {**filter_of(options), "count": True}, read_headers(options.get("min_seq")))
        n: int = (await self._requests.ask(call))["count"]
        return n

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
        body = given(next=whole_seconds(next), bucket=whole_seconds(bucket), defaultTtl=ttl_of(default_ttl))
        forecast: dict[str, Any] = await self._requests.ask(Call(f"api.forecast.{self.name}", "read", body, read_headers(min_seq)))
        return forecast

    def _call(self, o: Op, msg_id: str | None = None) -> Call:
        headers = {_HEADERS[name]: "true" if value is True else str(value) for name, value in o.options.items()}
        return Call(f"api.document.{o.op}.{self.name}.{token_of(o.id)}", "write", o.body, {**headers, "Nats-Msg-Id": msg_id})

    async def _item(self, call: Call) -> Item:
        body, headers = await self._requests.send(call)
        return item_of(body, lifetime_of(headers))


async def _or_none(result: Awaitable[Item]) -> Item | None:
    try:
        return await result
    except LapseError as e:
        if e.error == "document_not_found":
            return None
        raise
