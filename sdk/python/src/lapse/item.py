"""Items and collections of replies."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from .types import CollectionInfo, Item
from .values import NEVER, moment_of


def item_of(body: dict[str, Any], lifetime: dict[str, Any]) -> Item:
    """Returns the item of a document."""
    value = {name: member for name, member in body.items() if name not in ("_ts", "_etag")}
    etag = body["_etag"]
    return Item(value["id"], value, etag, int(etag), moment_of(body["_ts"]), **lifetime)


def lifetime_of(headers: Mapping[str, str]) -> dict[str, Any]:
    """Returns the lifetime in the headers of a reply."""
    return lifetime(headers.get("Lapse-Deadline"), headers.get("Lapse-Rule"), headers.get("Lapse-Hold"))


def lifetime(deadline: int | str | None, rule: str | None, hold: str | None) -> dict[str, Any]:
    """Returns a lifetime of a deadline in unix seconds, a rule, and the reason of a hold."""
    moment = None if deadline is None else moment_of(int(deadline))
    return {"deadline": moment, "rule": rule, "held": hold is not None, "reason": hold}


def info_of(body: dict[str, Any]) -> CollectionInfo:
    """Returns a collection of a reply."""
    ttl, warn = body["defaultTtl"], body.get("warnBefore")
    return CollectionInfo(
        name=body["id"],
        default_ttl=NEVER if ttl == -1 else ttl and timedelta(seconds=ttl),
        warn_before=warn and timedelta(seconds=warn),
        indexing_policy=body["indexingPolicy"],
        previous_images=body["previousImages"],
        metadata=body.get("metadata", {}),
        modified=moment_of(body["_ts"]),
        etag=body["_etag"],
        documents=body.get("documents"),
        bytes=body.get("bytes"),
        held=body.get("held"),
    )
