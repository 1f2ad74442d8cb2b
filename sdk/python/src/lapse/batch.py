"""Operations on documents, alone or together."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Unpack

from .item import item_of, lifetime
from .names import check_id
from .request import error_of
from .types import Item, Result, WriteOptions
from .values import Duration, given, ttl_of, unix, whole_seconds


@dataclass(frozen=True)
class Op:
    """One operation of a batch: make it by `Op.get`, `Op.create` and so on, with the arguments of the methods."""

    op: str
    id: str
    body: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    content: bool = True

    @staticmethod
    def get(id: str) -> "Op":
        return Op("get", id)

    @staticmethod
    def create(id: str, value: dict[str, Any], **options: Unpack[WriteOptions]) -> "Op":
        return _write("create", id, value, **options)

    @staticmethod
    def upsert(id: str, value: dict[str, Any], **options: Unpack[WriteOptions]) -> "Op":
        return _write("upsert", id, value, **options)

    @staticmethod
    def replace(id: str, value: dict[str, Any], **options: Unpack[WriteOptions]) -> "Op":
        return _write("replace", id, value, **options)

    @staticmethod
    def patch(id: str, patch: dict[str, Any], **options: Unpack[WriteOptions]) -> "Op":
        return _write("patch", id, patch, **options)

    @staticmethod
    def delete(id: str, *, if_match: str | None = None) -> "Op":
        return Op("delete", id, None, given(ifMatch=if_match))

    @staticmethod
    def touch(id: str, *, min_age: Duration | None = None, content: bool = False, if_match: str | None = None) -> "Op":
        """With `content` the item of the result has the document."""
        body = given(minAge=whole_seconds(min_age), content=content or None)
        return Op("touch", id, body or None, given(ifMatch=if_match), content)

    @staticmethod
    def hold(id: str, reason: str | None = None) -> "Op":
        return Op("hold", id, given(reason=reason) or None)

    @staticmethod
    def release(id: str) -> "Op":
        return Op("release", id)

    @staticmethod
    def restore(id: str, version: str | None = None) -> "Op":
        return Op("restore", id, given(version=version) or None)


def _write(
    op: str,
    id: str,
    value: Any,
    *,
    ttl: Duration | None = None,
    expire_at: datetime | None = None,
    keep_deadline: bool = False,
    if_match: str | None = None,
) -> Op:
    body = value if ttl is None or not isinstance(value, Mapping) else {**value, "ttl": ttl_of(ttl)}
    return Op(op, id, body, given(ifMatch=if_match, expireAt=expire_at and unix(expire_at), keepDeadline=keep_deadline or None))


def batch_of(operations: Iterable[Op], atomic: bool) -> dict[str, Any]:
    """Returns the body of a batch. Raises a LapseError `bad_id` for an id that JSON cannot have; lapse judges the others."""
    for o in operations:
        if re.search("[\ud800-\udfff]", o.id):
            check_id(o.id)
    return {"operations": [{"op": o.op, "id": o.id, **given(body=o.body), **o.options} for o in operations], "atomic": atomic}


def result_of(o: Op, r: dict[str, Any]) -> Result:
    """Returns the outcome of an operation, of its part of the reply."""
    body = r.get("body")
    if r["code"] >= 400:
        return Result(error=error_of(r["code"], body or {}))
    if not body:
        return Result()
    life = lifetime(r.get("deadline"), r.get("rule"), r.get("hold"))
    nothing: Any = None
    if "_etag" not in body:
        return Result(Item(body["id"], nothing, nothing, nothing, nothing, **life))
    item = item_of(body, life)
    return Result(item if o.content else Item(**{**vars(item), "value": nothing}))
