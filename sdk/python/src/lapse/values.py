"""Lengths of time, moments, and JSON."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, overload

Duration = timedelta | int | float | str
"""A length of time: a timedelta, seconds, or text such as "30m", "1h30m" or "7d"."""

Never = Literal["never"]
NEVER: Final = "never"
"""The time to live of documents that do not expire."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253402300799  # the last second that a datetime can be
_FORM = re.compile(r"(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


def seconds(d: Duration) -> float:
    """Returns a length of time in seconds. Raises ValueError if it is none."""
    if isinstance(d, timedelta):
        return d.total_seconds()
    if isinstance(d, str):
        if re.fullmatch(r"[0-9]+", d):
            return int(d)
        if match := _FORM.fullmatch(d):
            return sum(int(n or 0) * unit for n, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
    elif not isinstance(d, bool) and d - d == 0:
        return d
    raise ValueError(f'{d!r} is no length of time: use a timedelta, seconds, or text such as "30m", "1h30m" or "7d"')


@overload
def whole_seconds(d: None) -> None: ...
@overload
def whole_seconds(d: Duration) -> int: ...
def whole_seconds(d: Duration | None) -> int | None:
    """Returns a length of time in whole seconds. Raises ValueError if it has a fraction of a second."""
    if d is None:
        return None
    n = seconds(d)
    if n != int(n):
        raise ValueError(f"{d!r} is no whole number of seconds")
    return int(n)


def positive_seconds(d: Duration) -> float:
    """Returns a length of time in seconds. Raises ValueError unless it is above 0."""
    if (n := seconds(d)) <= 0:
        raise ValueError(f"{d!r} is not above 0")
    return n


def ttl_of(ttl: Duration | None) -> int | None:
    """Returns a time to live as it is sent. Raises ValueError if it can't be one."""
    return -1 if ttl == NEVER else whole_seconds(ttl)


def check_moment(moment: datetime) -> datetime:
    """Raises ValueError for a datetime without a time zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone: use datetime(…, tzinfo=UTC)")
    return moment


def unix(moment: datetime) -> int:
    """Returns a moment in unix seconds, rounded up. Raises ValueError for one without a time zone."""
    return -((EPOCH - check_moment(moment)) // timedelta(seconds=1))


def moment_of(seconds: int) -> datetime:
    """Returns a moment of unix seconds, in UTC; after the year 9999, the last one of it."""
    return EPOCH + timedelta(seconds=min(seconds, _LAST))


def moment_of_ms(ms: int) -> datetime:
    """Returns a moment of milliseconds since 1970, in UTC."""
    return EPOCH + timedelta(milliseconds=ms)


def given(**members: Any) -> dict[str, Any]:
    """Returns the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def dumps(value: Any) -> bytes:
    """Writes JSON. Raises ValueError or TypeError for what is none."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
