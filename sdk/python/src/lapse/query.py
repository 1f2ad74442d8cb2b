"""Queries, page by page."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from .errors import LapseError
from .item import item_of, lifetime
from .request import Call, Requests
from .types import Item, Page
from .values import given, unix, whole_seconds

_GOOD_PAGES = 4  # after which a query tries a larger size again


class CountOptions(TypedDict, total=False):
    """Which documents a count counts.

    `where` is a condition in CEL over `doc` and `params`, and `id_prefix` the beginning of the
    id. `due` has deadlines at or after its `from` and before its `until`, each a datetime, unix
    seconds, or a length of time from now as timedelta or text. `held` is for held documents only.
    """

    where: str | None
    params: Mapping[str, Any] | None
    id_prefix: str | None
    due: Mapping[str, datetime | timedelta | int | str | None] | None
    held: bool | None
    min_seq: int | None


class QueryOptions(CountOptions, total=False):
    """Which documents a query returns.

    `order_by` has JSON pointers; without them, documents are ordered by id. `select` has the
    pointers of the members that the values have, besides `id`. `limit` is how many documents
    there are at most, by default all, and `page_size` how many a page has, 1 to 1000. `cursor`
    is that of the page before.
    """

    order_by: Sequence[str | Mapping[str, Any]] | None
    select: Sequence[str] | None
    limit: int | None
    page_size: int | None
    cursor: str | None


class Query:
    """The documents that match: `async for` yields items, `pages` pages. Each loop sends the query anew."""

    def __init__(self, requests: Requests, collection: str, options: QueryOptions) -> None:
        check(options, QueryOptions)
        self._requests = requests
        self._collection = collection
        self._options = options

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page.items:
                yield item

    async def pages(self) -> AsyncIterator[Page]:
        """Yields pages. One that would look at too much for the server is asked for again in smaller ones."""
        o = self._options
        order, select, limit, cursor, most = o.get("order_by"), o.get("select"), o.get("limit"), o.get("cursor"), o.get("page_size")
        body = filter_of(o) | given(
            orderBy=order and [{"path": by} if isinstance(by, str) else by for by in order],
            select=None if select is None else list(dict.fromkeys([*select, "/id", "/_etag", "/_ts"])),
            deadlines=True,
        )
        if most is None:
            most = 100 if limit is None else min(limit, 1000)
        size, good = most, 0
        while True:
            asked = size if limit is None else min(size, limit)
            call = Call(f"api.query.{self._collection}", "read", body | given(limit=asked, cursor=cursor), read_headers(o.get("min_seq")))
            try:
                reply = await self._requests.ask(call)
            except LapseError as e:
                if e.code != 413 or asked <= 1:
                    raise
                size, good = asked // 2, 0
                continue
            cursor = reply.get("cursor")
            good += 1
            if good == _GOOD_PAGES:
                size, good = min(2 * size, most), 0
            yield Page([_item_of(d) for d in reply["documents"]], cursor)
            if limit is not None:
                limit -= len(reply["documents"])
            if not cursor or limit == 0:
                return


def check(options: Mapping[str, Any], known: type) -> None:
    """Raises TypeError for an option that is none of a query, or of a count."""
    if unknown := options.keys() - known.__annotations__.keys():
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")


def read_headers(min_seq: int | None) -> dict[str, str | None]:
    """Returns the headers of a read."""
    return {"Lapse-Min-Seq": None if min_seq is None else str(min_seq)}


def filter_of(o: CountOptions) -> dict[str, Any]:
    """Returns the members of a request that choose documents."""
    due = o.get("due")
    bounds = None if due is None else given(**{name: _moment(moment) for name, moment in due.items()})
    return given(where=o.get("where"), params=o.get("params"), idPrefix=o.get("id_prefix"), held=o.get("held"), due=bounds)


def _item_of(d: dict[str, Any]) -> Item:
    life = lifetime(d.pop("_deadline", None), d.pop("_rule", None), d.pop("_hold", None))
    return item_of(d, life)


def _moment(moment: datetime | timedelta | int | str | None) -> int | str | None:
    if isinstance(moment, timedelta):
        return f"{whole_seconds(moment)}s"
    return unix(moment) if isinstance(moment, datetime) else moment
