"""Names of databases and collections, and ids as tokens of subjects."""

import json
import re
import unicodedata
from urllib.parse import quote, unquote_to_bytes

from .errors import LapseError


def check_database(name: str) -> None:
    """Raises a LapseError unless a database may have this name."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", name):
        raise LapseError(400, "bad_request", f"database name {_quoted(name)}: use 1 to 32 of a-z, 0-9 and -, not starting with -")


def check_collection(name: str) -> None:
    """Raises a LapseError unless a collection may have this name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        allowed = "use 1 to 64 of A-Z, a-z, 0-9, _ and -, starting with a letter or digit"
        raise LapseError(400, "bad_request", f"collection name {_quoted(name)}: {allowed}")


def token_of(id: str) -> str:
    """Returns an id as a token of a subject. Raises a LapseError `bad_id` if it is illegal."""
    check_id(id)
    return quote(id, safe="=:@~").replace(".", "%2E")


def id_of(token: str) -> str:
    """Returns the id of a token, the inverse of token_of. Raises a LapseError `bad_id` for a malformed token."""
    if not re.fullmatch(r"(?:[A-Za-z0-9_=:@~-]|%[0-9A-Fa-f]{2})*", token):
        raise _bad_id(f"{_quoted(token)} has a malformed escape or a raw byte: write every byte outside A-Z a-z 0-9 _ - = : @ ~ as %XX")
    try:
        id = unquote_to_bytes(token).decode()
    except UnicodeDecodeError:
        raise _bad_id(f"{_quoted(token)} is not UTF-8") from None
    check_id(id)
    return id


def check_id(id: str) -> None:
    """Raises a LapseError `bad_id` unless a document may have this id."""
    if not isinstance(id, str) or id == "":
        raise _bad_id("is empty: use 1 to 255 bytes of UTF-8")
    categories = {unicodedata.category(char) for char in id}
    if "Cs" in categories:  # half a pair of surrogates
        raise _bad_id(f"{_quoted(id)} is not UTF-8")
    if "Cc" in categories:
        raise _bad_id(f"{_quoted(id)} has a control character")
    if (size := len(id.encode())) > 255:
        raise _bad_id(f"has {size} bytes: at most 255 are allowed")


def _bad_id(what: str) -> LapseError:
    return LapseError(400, "bad_id", f"the id {what}")


def _quoted(name: str) -> str:
    return json.dumps(name[:80])
