"""Documents and collections against `lapse test`."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from process import BINARY, ENVIRONMENT
from test_request import facts, refused

import lapse
import lapse.testing
from lapse import NEVER, Op
from lapse.testing import Moved, Server, TestDatabase

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_document_expires_at_its_deadline(lapse_server: Server) -> None:
    db = await lapse_server.open(at=NEW_YEAR)
    info = await db.create_collection("sessions", default_ttl=timedelta(minutes=30))
    assert (info.name, info.default_ttl, info.warn_before, info.modified) == ("sessions", timedelta(minutes=30), None, NEW_YEAR)
    sessions = db.collection("sessions")
    a = await sessions.upsert("a", {"n": 1})
    deadline = NEW_YEAR + timedelta(minutes=30)
    assert a == lapse.Item("a", {"id": "a", "n": 1}, str(a.seq), a.seq, NEW_YEAR, deadline, "collection", False, None)
    assert await sessions.get("a", min_seq=a.seq) == a
    assert await db.advance(1799) == Moved(deadline - timedelta(seconds=1), (await db.status())["seq"], 0)
    assert await sessions.get("a")
    assert (await db.advance(timedelta(seconds=1))).events == 1
    assert await sessions.get("a") is None
    assert facts(await refused(sessions.replace("a", {"n": 2}))) == (404, "document_not_found", False)
    assert (await sessions.restore("a")).value["n"] == 1
    await db.drop()
    assert (await refused(db.now())).error == "database_not_found"


async def test_options_of_writes(lapse_server: Server) -> None:
    async with await lapse_server.open(at=NEW_YEAR) as db:
        await db.create_collection("c", default_ttl=NEVER, warn_before=60, metadata={"owner": "x"})
        c = db.collection("c")
        end = NEW_YEAR + timedelta(seconds=10.5)
        assert (await c.create("a", {}, expire_at=end.astimezone(timezone(timedelta(hours=2))))).deadline == NEW_YEAR + timedelta(
            seconds=11
        )
        await db.advance(5)
        kept = await c.patch("a", {"n": 1}, keep_deadline=True)
        assert kept.deadline == NEW_YEAR + timedelta(seconds=11)
        assert (await c.upsert("a", {"ttl": 7}, ttl="1m")).value == {"id": "a", "ttl": 60}
        assert (await c.upsert("a", {}, ttl=NEVER)).deadline is None
        assert (await refused(c.upsert("a", {}, if_match=kept.etag))).code == 412
        once = await c.upsert("b", {"n": 1}, msg_id="x")
        assert (await c.upsert("b", {"n": 1}, msg_id="x")).etag == once.etag
        for ttl in (0, -2, 2**31):
            assert (await refused(c.upsert("b", {}, ttl=ttl))).error == "bad_ttl"
        for bad in (1.5, float("nan"), float("inf"), "soon", "", "1.5h", "-1s", timedelta(milliseconds=1), True):
            with pytest.raises(ValueError):
                await c.upsert("b", {}, ttl=bad)
        with pytest.raises(ValueError, match="no time zone"):
            await c.upsert("b", {}, expire_at=datetime(2026, 1, 1))
        with pytest.raises(ValueError):
            await c.upsert("b", {"n": float("nan")})
        with pytest.raises(TypeError):
            await c.upsert("b", {}, expires=end)  # type: ignore[call-arg]
        await c.delete("b", if_match=once.etag)
        assert await c.get("b") is None


async def test_a_batch_has_an_outcome_for_each_operation(lapse_server: Server) -> None:
    async with await lapse_server.open(at=NEW_YEAR) as db:
        await db.create_collection("c", default_ttl=100)
        c = db.collection("c")
        results = await c.batch(
            [
                *(Op.upsert("a", {"n": 1}, ttl="1m"), Op.get("a"), Op.get("b"), Op.touch("a"), Op.touch("a", content=True)),
                *(Op.hold("a", "r"), Op.delete("a"), Op.create("d", {}, expire_at=NEW_YEAR + timedelta(seconds=5)), Op.release("a")),
            ]
        )
        a, got, none, touched, content, held, gone, created, released = results
        assert a.item and (a.item.value, a.item.rule) == ({"id": "a", "n": 1, "ttl": 60}, "document")
        assert got == a
        assert none.item is None and none.error and none.error.error == "document_not_found"
        assert touched.item and content.item and (touched.item.value, content.item.value) == (None, {"id": "a", "n": 1, "ttl": 60})
        assert held.item and (held.item.id, held.item.held, held.item.reason, held.item.etag) == ("a", True, "r", None)
        assert gone.error and gone.error.error == "document_held"
        assert created.item and created.item.deadline == NEW_YEAR + timedelta(seconds=5)
        assert released.item and not released.item.held
        atomic = await c.batch([Op.delete("d"), Op.create("a", {})], atomic=True)
        assert [r.error and r.error.error for r in atomic] == ["failed_dependency", "document_exists"]
        assert await c.batch(iter([Op.delete("d")])) == [lapse.Result()]
        assert (await refused(c.batch([Op.get("\ud800")]))).error == "bad_id"
        assert [r.error and r.error.error for r in await c.batch([Op.get(""), Op.get("a\0")])] == ["bad_id", "bad_id"]
        with pytest.raises(TypeError):
            Op.create("a", {}, msg_id="x")  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            Op.create("a", {}, expires=5)  # type: ignore[call-arg]


async def test_queries_and_pages(lapse_server: Server) -> None:
    async with await lapse_server.open(at=NEW_YEAR) as db:
        await db.create_collection("c", default_ttl=NEVER)
        c = db.collection("c")
        await c.batch(Op.create(f"d{n:03}", {"n": n}, ttl=n + 1) for n in range(250))

        async def ids(**options: Any) -> list[str]:
            return [item.id async for item in c.query(**options)]

        assert len(await ids()) == 250
        assert len(await ids(limit=120)) == 120
        assert await ids(where="doc.n > params.m", params={"m": 246}, order_by=[{"path": "/n", "desc": True}]) == ["d249", "d248", "d247"]
        assert await ids(id_prefix="d00", order_by=["/n"], limit=2) == ["d000", "d001"]
        assert await ids(due={"until": NEW_YEAR + timedelta(seconds=3)}) == ["d000", "d001"]
        assert await ids(due={"from": timedelta(seconds=249), "until": "1h"}) == ["d248", "d249"]
        assert await ids(held=True) == []
        [item] = [item async for item in c.query(select=["/n"], limit=1)]
        assert (item.value, item.deadline) == ({"id": "d000", "n": 0}, NEW_YEAR + timedelta(seconds=1))
        pages = [page async for page in c.query().pages()]
        assert [(len(p.items), p.cursor is None) for p in pages] == [(100, False), (100, False), (50, True)]
        assert await ids(cursor=pages[0].cursor, limit=1) == ["d100"]
        assert await c.count(where="doc.n < 10") == 10
        assert (await refused(ids(limit=0))).error == "bad_request"
        assert (await refused(ids(where="doc.n >"))).error == "bad_query"
        with pytest.raises(TypeError, match="pagesize"):
            c.query(pagesize=3)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="limit"):
            await c.count(limit=3)  # type: ignore[call-arg]
        assert (await refused(ids(page_size=0))).error == "bad_request"


async def test_history_and_forecast(lapse_server: Server) -> None:
    async with await lapse_server.open(at=NEW_YEAR) as db:
        await db.create_collection("c", default_ttl=100)
        c = db.collection("c")
        await c.batch(Op.upsert("a", {"n": n}) for n in range(120))
        assert (await c.forecast(next=timedelta(hours=2), bucket="1h", default_ttl="30m"))["due"] == 1
        await db.advance("due")
        events = [event async for event in c.history("a")]
        assert [e.type for e in events] == ["DocumentExpired", *["DocumentReplaced"] * 119, "DocumentCreated"]
        end = NEW_YEAR + timedelta(seconds=100)
        first = events[0]
        assert (first.time, first.deadline, first.ttl, first.value) == (end, end, timedelta(seconds=100), {"id": "a", "n": 119})
        assert len([event async for event in c.history("a", limit=2)]) == 2
        assert (await refused(anext(c.history("b")))).code == 404


async def test_integers_come_back_as_they_were_sent(lapse_db: TestDatabase) -> None:
    await lapse_db.create_collection("c")
    value = {"id": "a", "big": 2**63, "list": [-(2**60)], "text": "12345678901234567890ä😀", "float": 1.2345678901234567}
    assert (await lapse_db.collection("c").upsert("a", value)).value == value


async def test_clocks_begin_where_at_says_or_at_the_end_of_a_loaded_log(tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    async with lapse.testing.start(at=at) as server:
        db, other = await server.open(), await server.open(at=datetime(1970, 1, 1, tzinfo=UTC))
        assert (await other.advance(datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC))).now.minute == 1
        assert await db.now() == at
    body = {"defaultTtl": None, "indexingPolicy": {"indexingMode": "consistent", "includedPaths": []}, "previousImages": True}
    line = {"seq": 1, "time": "2015-05-17T10:05:03.000Z", "type": "CollectionCreated", "collection": "c", "body": body}
    (tmp_path / "log").write_text(json.dumps(line) + "\n")
    async with lapse.testing.start(load=tmp_path / "log") as server:
        assert await (await server.open()).now() == datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC)


async def test_a_server_that_cannot_start_is_an_error_that_says_why() -> None:
    for options, text in (
        ({"binary": "/nowhere/lapse"}, "cannot start /nowhere/lapse .*LAPSE_BINARY"),
        ({"binary": sys.executable}, "cannot start"),
        ({"args": ["--store-dir", "x"]}, "store-dir"),
    ):
        with pytest.raises(RuntimeError, match=text) as e:
            async with lapse.testing.start(**options):  # type: ignore[arg-type]
                pass
        assert "\n" not in str(e.value)


async def test_a_database_that_cannot_be_opened_leaves_no_connection(lapse_server: Server) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(ValueError, match="no time zone"):
        await lapse_server.open(at=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="above 0"):
        await lapse_server.open(timeout=0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise SystemExit(3)", "pass"])
def test_the_server_ends_with_the_test_process(end: str) -> None:
    script = f"import os, lapse.testing\ns = lapse.testing.Server({BINARY!r})\nprint(s.url, flush=True)\n{end}"
    child = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, stdout=subprocess.PIPE, check=False)
    url = urlsplit(child.stdout.decode().strip())
    with pytest.raises(ConnectionRefusedError):
        while True:
            socket.create_connection((url.hostname or "", url.port or 0)).close()
            time.sleep(0.02)
