"""What calls accept and return."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from .errors import LapseError
from .values import Duration, Never

Rule = Literal["document", "collection"]


class WriteOptions(TypedDict, total=False):
    """Options of a write.

    `ttl` counts from this write and replaces a member `ttl` of the value; NEVER is for ever.
    `expire_at` is when the document expires, rounded up to a second. With `keep_deadline` it
    keeps the deadline that it has. `if_match` refuses the write unless the live version is
    this one.
    """

    ttl: Duration | None
    expire_at: datetime | None
    keep_deadline: bool
    if_match: str | None


class FeedOptions(TypedDict, total=False):
    """Which events a feed has.

    `durable` is the name under which the position is kept: of several readers with one name,
    one reads and the others wait. `from_` is the first event: a sequence, a log time, or
    "start"; the next event by default. It counts at the first use of `durable`. The feed ends
    with the sequence `until`, before the first event after that log time, or with the last
    event that is there "now". `ack_wait` is how long the server waits for a vanished reader of
    `durable`, 1 s to 1 h: 5 s, or what the first use of the name set.
    """

    durable: str | None
    collection: str | None
    from_: int | datetime | Literal["start"] | None
    until: int | datetime | Literal["now"] | None
    ack_wait: Duration | None


class ChangesOptions(FeedOptions, total=False):
    """Which events a feed of several types has: by default those of all types."""

    types: list[str] | None


class Properties(TypedDict, total=False):
    """The properties of a collection. One that is left out has its default.

    `default_ttl` is how long a document without a `ttl` lives; None, the default, turns TTL
    off. `warn_before` is how long before each deadline a `DocumentExpiring` is logged.
    `previous_images` is whether events that end a document have it; True by default.
    """

    default_ttl: Duration | None
    warn_before: Duration | None
    indexing_policy: dict[str, Any] | None
    previous_images: bool | None
    metadata: dict[str, str] | None


@dataclass(frozen=True)
class CollectionInfo:
    """A collection as of a reply. `documents`, `bytes` and `held` are known to get_collection only."""

    name: str
    default_ttl: timedelta | Never | None
    warn_before: timedelta | None
    indexing_policy: dict[str, Any]
    previous_images: bool
    metadata: dict[str, str]
    modified: datetime
    etag: str
    documents: int | None = None
    bytes: int | None = None
    held: int | None = None


@dataclass(frozen=True)
class Touched:
    """A version of unchanged content."""

    id: str
    etag: str
    modified: datetime
    deadline: datetime | None
    rule: Rule | None
    held: bool
    reason: str | None = None


@dataclass(frozen=True)
class Item:
    """A live document as of a reply.

    `value` is the document as stored, `id` included, without `_ts` and `_etag`. `etag` is its
    version, and `seq` the log sequence of it, which `min_seq` takes. `modified` is in whole
    seconds. `deadline` is None if the document does not expire. While it is `held`, for a
    `reason` that may be empty, it neither expires nor can be deleted.
    """

    id: str
    value: dict[str, Any]
    etag: str
    seq: int
    modified: datetime
    deadline: datetime | None
    rule: Rule | None
    held: bool
    reason: str | None = None


@dataclass(frozen=True)
class Result:
    """The outcome of an operation in a batch: an item, or an error.

    The item of a delete is None, that of a touch without `content` has no value, and that of a
    hold or release has its id, its lifetime and nothing else.
    """

    item: Item | None = None
    error: LapseError | None = None


@dataclass(frozen=True)
class Page:
    """A page of a query. `cursor` is where the next page begins; the last page has none."""

    items: list[Item]
    cursor: str | None = None


@dataclass(frozen=True)
class Event:
    """An event of the log.

    `seq` is its log sequence and `time` the log time. `previous` is the version that it ends,
    or is about, `restored` the version whose content a restore brought back, and `cause` the
    mutation of JetStream that caused it. `ttl` led to the deadline. `value` is the body: a
    document without `_ts` and `_etag`, properties, or a rejection.
    """

    seq: int
    time: datetime
    type: str
    collection: str
    id: str | None = None
    previous: str | None = None
    deadline: datetime | None = None
    ttl: timedelta | None = None
    rule: Rule | None = None
    restored: str | None = None
    cause: str | None = None
    traceparent: str | None = None
    value: Any = None
