"""A database, and a connection to it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Unpack

from nats import errors as nats
from nats.aio.client import Client

from .collection import Collection
from .errors import LapseError
from .feed import Choice, Feed, changes
from .handle import Handler, Poison, handle
from .item import info_of
from .log import Log
from .names import check_collection, check_database
from .request import Call, Requests
from .types import ChangesOptions, CollectionInfo, FeedOptions, Properties
from .values import Duration, given, positive_seconds, ttl_of, whole_seconds


class Database:
    """A client of one database, over a connection of nats-py that its caller owns.

    `timeout` is how long a call waits for its reply, and for a connection that is away. With
    `read_your_writes` a read sees all earlier writes and reads of this object, whichever process
    answers. `api_prefix`, such as `LAPSE.API`, is where the account imports the API of the
    JetStream that has the log.
    """

    def __init__(
        self,
        nc: Any,
        *,
        database: str = "main",
        timeout: Duration = 10,
        read_your_writes: bool = False,
        api_prefix: str | None = None,
    ) -> None:
        check_database(database)
        self.database = database
        self._requests = Requests(nc, database, positive_seconds(timeout), read_your_writes)
        self._log = Log(self._requests, api_prefix)

    async def create_collection(self, name: str, **properties: Unpack[Properties]) -> CollectionInfo:
        """Creates a collection. It is a 409 if it is there."""
        return await self._put("create", name, None, **properties)

    async def get_collection(self, name: str) -> CollectionInfo:
        """Returns a collection, or raises a 404."""
        check_collection(name)
        return info_of(await self._requests.ask(Call(f"api.collection.get.{name}", "read")))

    async def replace_collection(self, name: str, *, if_match: str | None = None, **properties: Unpack[Properties]) -> CollectionInfo:
        """Replaces all properties of a collection. Those that are left out get their defaults."""
        return await self._put("replace", name, if_match, **properties)

    async def delete_collection(self, name: str) -> None:
        """Deletes a collection with its documents."""
        check_collection(name)
        await self._requests.send(Call(f"api.collection.delete.{name}", "write"))

    async def list_collections(self) -> list[CollectionInfo]:
        """Returns all collections, ordered by name."""
        all: list[CollectionInfo] = []
        cursor: str | None = None
        while True:
            page = await self._requests.ask(Call("api.collection.list", "read", given(cursor=cursor) or None))
            all += map(info_of, page["collections"])
            cursor = page.get("cursor")
            if not cursor:
                return all

    def collection(self, name: str) -> Collection:
        """Returns a collection, without a request."""
        return Collection(self._requests, name)

    async def status(self) -> dict[str, Any]:
        """Returns the status of a process that serves the database, as lapse replies it."""
        status: dict[str, Any] = await self._requests.ask(Call("api.status", "read"))
        return status

    def expirations(self, **options: Unpack[FeedOptions]) -> Feed:
        """Returns the events of documents that have expired, with their last content. See changes."""
        return self.changes(**options, types=["DocumentExpired"])

    def warnings(self, **options: Unpack[FeedOptions]) -> Feed:
        """Returns the warnings of documents that expire soon, in collections with `warn_before`. See changes."""
        return self.changes(**options, types=["DocumentExpiring"])

    def changes(self, **options: Unpack[ChangesOptions]) -> Feed:
        """Returns the events of the log in their order, for ever or up to `until`.

        With `durable`, an event is acknowledged when the loop asks for the next one, and
        delivered again if the feed is closed before.
        """
        return Feed(changes(self._log, Choice(**options)))

    async def handle(self, handler: Handler, *, workers: int = 1, poison: Poison | None = None, **options: Unpack[ChangesOptions]) -> None:
        """Calls a handler for each event of a feed with `durable`, and acknowledges the event when it has returned.

        Up to `workers` events of different documents are handled at the same time, those of one
        in order. When the handler raises, it is called again after 0.1 s, then twice as long each
        time, up to 10 s; with `poison=(tries, other)`, `other(event, error)` is called after so
        many tries instead, whose errors end the feed. It returns at the end of `until`.
        Cancelled, it cancels the handlers that run.
        """
        await handle(self._log, handler, Choice(**options), workers, poison)

    async def _put(
        self,
        op: str,
        name: str,
        if_match: str | None,
        *,
        default_ttl: Duration | None = None,
        warn_before: Duration | None = None,
        indexing_policy: dict[str, Any] | None = None,
        previous_images: bool | None = None,
        metadata: dict[str, str] | None = None,
    ) -> CollectionInfo:
        check_collection(name)
        body = given(
            defaultTtl=ttl_of(default_ttl),
            warnBefore=whole_seconds(warn_before),
            indexingPolicy=indexing_policy,
            previousImages=previous_images,
            metadata=metadata,
        )
        return info_of(await self._requests.ask(Call(f"api.collection.{op}.{name}", "write", body, {"If-Match": if_match})))


async def quiet(e: Exception) -> None:
    """Keeps what nats-py reports from the log of errors, since calls raise it."""
    logging.getLogger("lapse").debug("NATS: %s", e)


@asynccontextmanager
async def connect(
    servers: str | list[str] = "nats://127.0.0.1:4222",
    *,
    database: str = "main",
    timeout: Duration = 10,
    read_your_writes: bool = False,
    api_prefix: str | None = None,
    **options: Any,
) -> AsyncIterator[Database]:
    """Connects to NATS and closes the connection at the end. `options` go to `nats.connect`; the rest is that of Database.

    It connects again for as long as it takes, unless options say otherwise.
    """
    if not servers:
        raise ValueError("servers has no address of NATS")  # with which nats-py would never return
    check_database(database)
    nc = Client()
    try:
        try:
            async with asyncio.timeout(positive_seconds(timeout)):
                await nc.connect(servers, **{"error_cb": quiet, "max_reconnect_attempts": -1, "reconnect_time_wait": 0.1, **options})
        except (TimeoutError, OSError, nats.Error) as e:
            text = f"cannot connect to NATS ({nc.last_error or e}): check the address and the credentials"
            raise LapseError(503, "unavailable", text) from e
        yield Database(nc, database=database, timeout=timeout, read_your_writes=read_your_writes, api_prefix=api_prefix)
    finally:
        if nc.is_connecting or nc.is_connected or nc.is_reconnecting:  # else nats-py may fail to close it
            await nc.close()
