"""How the vectors of schema/vectors are read and compared. Its README says what they mean."""

import dataclasses
import json
import re
from collections.abc import AsyncIterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lapse

VECTORS = Path(__file__).parents[3] / "schema" / "vectors"


def read(file: str) -> list[Any]:
    return json.loads((VECTORS / file).read_text())


def names(vectors: list[Any]) -> list[str]:
    """Returns the names of test cases."""
    return [str(v.get("name", v))[:60] for v in vectors]


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), name)


def camel(name: str) -> str:
    return re.sub(r"_(.)", lambda m: m[1].upper(), name)


def moment(value: Any) -> Any:
    """Makes a datetime of the text of one."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", value):
        return datetime.fromisoformat(value)
    return value


def options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the keyword arguments of a call."""
    out = {}
    for name, value in given.items():
        name = {"from": "from_"}.get(name, snake(name))
        if name in ("expire_at", "from_", "until"):
            value = moment(value)
        elif name == "due":
            value = {bound: moment(at) for bound, at in value.items()}
        out[name] = value
    return out


def plain(value: Any) -> Any:
    """Returns a value as JSON shows it, moments as JavaScript's toISOString."""
    if isinstance(value, lapse.LapseError):
        return {"code": value.code, "error": value.error, "retryable": value.retryable}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel(f.name): plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, datetime):
        assert value.tzinfo is UTC
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    return value


async def result_of(db: Any, call: dict[str, Any]) -> Any:
    """Returns the result of a call as JSON would show it, or its refusal."""
    try:
        return plain(await _made(db, call))
    except lapse.LapseError as e:
        return {"error": plain(e)}


def _operation(o: dict[str, Any]) -> lapse.Op:
    rest = options({name: value for name, value in o.items() if name not in ("op", "id", "value")})
    return getattr(lapse.Op, o["op"])(o["id"], *([o["value"]] if "value" in o else []), **rest)


async def _made(db: Any, call: dict[str, Any]) -> Any:
    on = db.collection(call["collection"]) if "collection" in call else db
    args = list(call.get("args", []))
    do = snake(call["do"])
    # What is not the value of a write, or text, are options.
    positional = (
        [args.pop(0)] if args and (do in ("create", "upsert", "replace", "patch", "batch") or not isinstance(args[0], dict)) else []
    )
    keywords = {name: value for arg in args for name, value in options(arg).items()}
    if do == "batch":
        positional = [[_operation(o) for o in positional[0]]]
    if "id" in call:
        positional.insert(0, call["id"])
    if do == "pages":
        return [item async for page in on.query(*positional, **keywords).pages() for item in page.items]
    if do in ("query", "history"):
        return await listed(getattr(on, do)(*positional, **keywords), call.get("break"))
    if do in ("changes", "expirations", "warnings"):
        async with getattr(on, do)(*positional, **keywords) as events:
            return await listed(events, call.get("break"))
    if do == "handle":
        return await _handled(on, keywords, call.get("fail", []))
    return await getattr(on, do)(*positional, **keywords)


async def listed(of: AsyncIterable[Any], stop: int | None = None) -> list[Any]:
    all = []
    async for item in of:
        all.append(item)
        if len(all) == stop:
            break
    return all


async def _handled(db: Any, keywords: dict[str, Any], fail: list[str]) -> dict[str, Any]:
    handled: list[Any] = []
    poisoned: list[Any] = []

    async def handler(event: lapse.Event) -> None:
        if event.id in fail:
            raise RuntimeError("failed as wanted")
        handled.append(event)

    async def quarantine(event: lapse.Event, error: Exception) -> None:
        poisoned.append(event)

    if poison := keywords.pop("poison", None):
        keywords["poison"] = (poison["after"], quarantine)
    await db.handle(handler, **keywords)
    return {"handled": handled, "poisoned": poisoned}


def check(got: Any, want: Any, about: str = "") -> None:
    """Asserts that a result has what is wanted: of an object only the members that are given."""
    about = about or json.dumps(got)[:2000]
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), about
        for g, w in zip(got, want, strict=True):
            check(g, w, about)
    elif isinstance(want, dict):
        assert isinstance(got, dict), about
        for name, w in want.items():
            check(got.get(name), w, f"{name} of {about}")
    else:
        assert got == want and isinstance(got, bool) == isinstance(want, bool), about
