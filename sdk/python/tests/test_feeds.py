"""Feeds against `lapse test`."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from nats import connect
from nats import errors as nats
from process import Proxy
from standin import StandIn
from test_request import facts, refused
from vectors import listed, read

import lapse
from lapse.durable import Durable
from lapse.log import Log
from lapse.testing import Server, TestDatabase

CREATED: Any = {"from_": "start", "types": ["DocumentCreated"]}


@pytest.fixture
async def db(lapse_db: TestDatabase) -> AsyncIterator[TestDatabase]:
    """A database with a collection c."""
    await lapse_db.create_collection("c")
    yield lapse_db


async def create(db: lapse.Database, start: int, end: int, **value: Any) -> None:
    await db.collection("c").batch(lapse.Op.create(str(n), {"n": n, **value}) for n in range(start, end))


async def ids(db: lapse.Database, stop: str | None = None, **options: Any) -> list[str | None]:
    """Returns the ids of a feed's events; the loop ends at that of stop."""
    all: list[str | None] = []
    async with db.changes(**options) as events:
        async for event in events:
            all.append(event.id)
            if event.id == stop and stop is not None:
                break
    return all


def texts(start: int, end: int) -> list[str]:
    return [str(n) for n in range(start, end)]


def log_of(db: lapse.Database) -> Log:
    return db._log


async def test_a_feed_chooses_events_and_begins_and_ends_where_it_is_told(lapse_server: Server) -> None:
    new_year = datetime(2026, 1, 1, tzinfo=UTC)
    async with await lapse_server.open(at=new_year) as db:
        await db.create_collection("orders", default_ttl="1h", warn_before="10m")
        await db.create_collection("carts")
        for name, id in (("orders", "a"), ("orders", "b"), ("carts", "d"), ("orders", "c")):
            await db.advance(1)
            await db.collection(name).create(id, {"n": id})
        all = await listed(db.changes(from_="start", until="now"))
        assert [e.id or e.collection for e in all] == ["orders", "carts", "a", "b", "d", "c"]
        second = timedelta(seconds=1)
        cases: list[tuple[dict[str, Any], list[lapse.Event]]] = [
            ({"collection": "carts"}, [all[1], all[4]]),
            ({"types": ["CollectionCreated"]}, all[:2]),
            ({"types": ["DocumentCreated", "CollectionCreated"], "collection": "orders"}, [all[0], all[2], all[3], all[5]]),
            ({"from_": all[3].seq}, all[3:]),
            ({"from_": new_year + 3 * second}, all[4:]),
            ({"from_": new_year + 2.001 * second}, all[4:]),
            ({"from_": new_year + timedelta(days=1000)}, []),
            ({"until": all[3].seq}, all[:4]),
            ({"until": new_year + 2 * second}, all[:4]),
            ({"collection": "none"}, []),
            ({"until": 0}, []),
        ]
        for i, (options, want) in enumerate(cases):
            for durable in (None, f"d{i}"):
                chosen = {"from_": "start", "until": "now", **options, "durable": durable}
                async with db.changes(**chosen) as events:
                    assert await listed(events) == want, options


async def test_break_leaves_the_present_event_to_the_next_reader(db: TestDatabase) -> None:
    await create(db, 0, 6)
    assert await ids(db, "2", durable="d", **CREATED) == ["0", "1", "2"]
    assert await ids(db, durable="d", until="now", **CREATED) == ["2", "3", "4", "5"]
    assert await ids(db, durable="d", until="now", **CREATED) == []
    await create(db, 6, 7)
    assert await ids(db, durable="d", until="now", **CREATED) == ["6"]
    with pytest.raises(ZeroDivisionError):
        async with db.changes(durable="e", from_="start") as events:
            async for _ in events:
                _ = 1 / 0
    assert await ids(db, durable="e", until="now") == [None, *texts(0, 7)]
    async for _ in db.changes(durable="f", **CREATED):  # also without async with
        break
    assert await ids(db, durable="f", until="now", **CREATED) == texts(0, 7)


async def test_a_durable_without_from_begins_with_the_next_event(db: TestDatabase) -> None:
    await create(db, 0, 2)
    types: Any = {"types": ["DocumentCreated"], "until": "now"}
    assert await ids(db, durable="d", **types) == []
    await create(db, 2, 4)
    assert await ids(db, durable="d", **types) == ["2", "3"]


async def test_a_reader_that_chooses_other_events_or_is_of_another_program_is_refused(db: TestDatabase) -> None:
    await create(db, 0, 1)
    await ids(db, durable="d", until="now", ack_wait=6, **CREATED)
    e = await refused(ids(db, durable="d", until="now"))
    assert e.code == 400 and "reads lapse." in str(e) and "nats consumer rm LAPSE_t" in str(e)
    e = await refused(ids(db, durable="d", until="now", ack_wait=5, **CREATED))
    assert e.code == 400 and "ack wait 6 s, and this reader asks for 5 s" in str(e)
    await log_of(db).create_consumer({"name": "theirs", "durable_name": "theirs", "ack_policy": "all"})
    assert "belongs to another program" in str(await refused(ids(db, durable="theirs", until="now")))
    bad: list[dict[str, Any]] = [{"durable": ""}, {"durable": "a.b"}, {"collection": "a b"}, {"types": ["Nothing"]}, {"from_": 1000}]
    for options in bad:
        assert (await refused(ids(db, **options))).code == 400
    wrong: list[dict[str, Any]] = [{"from_": -1}, {"until": 1.5}, {"from_": datetime(2026, 1, 1)}, {"from_": "now"}, {"ack_wait": "2h"}]
    for options in wrong:
        with pytest.raises(ValueError):
            await ids(db, **options)


async def test_of_two_readers_one_reads_and_the_other_waits_and_takes_over_in_order(lapse_server: Server, db: TestDatabase) -> None:
    await create(db, 0, 50)
    async with lapse.connect(lapse_server.url, database=db.database) as other:
        async with db.changes(durable="d", **CREATED) as events:
            first = [(await anext(events)).id for _ in range(4)]
            await create(db, 50, 55)
            second = asyncio.create_task(ids(other, durable="d", until="now", **CREATED))
            first += [(await anext(events)).id for _ in range(17)]
        assert first == texts(0, 21)
        assert await second == texts(20, 55)


async def test_a_body_that_takes_longer_than_the_ack_wait_keeps_its_event(db: TestDatabase) -> None:
    await create(db, 0, 3)
    seen = []
    async with db.changes(durable="d", until="now", ack_wait=1, **CREATED) as events:
        async for event in events:
            seen.append(event.id)
            if event.id == "0":
                for _ in range(3):
                    await asyncio.sleep(1)  # the ack wait of NATS goes by the machine's clock
                    info = await log_of(db).consumer("d")
                    assert info and info["num_redelivered"] == 0
    assert seen == texts(0, 3)


@pytest.mark.parametrize("durable", [None, "d"])
async def test_a_cancelled_feed_ends_and_leaves_its_event(db: TestDatabase, durable: str | None) -> None:
    await create(db, 0, 3)
    seen = []
    reached = asyncio.Event()

    async def follow() -> None:
        async with db.changes(durable=durable, **CREATED) as events:
            async for event in events:
                seen.append(event.id)
                if event.id == "2":
                    reached.set()

    task = asyncio.create_task(follow())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == texts(0, 3)
    if durable:
        assert await ids(db, durable=durable, until="now", **CREATED) in ([], ["2"])
    else:
        assert await readers(db) == []


async def readers(db: lapse.Database) -> list[dict[str, Any]]:
    """Returns the consumers of feeds without a durable."""
    reply = await log_of(db).request("CONSUMER.LIST", "", {"offset": 0})
    return [info for info in reply["consumers"] or [] if info["name"].startswith("lapse_reader_")]


async def test_a_feed_fails_when_its_consumer_is_deleted_or_its_connection_is_closed(lapse_server: Server, db: TestDatabase) -> None:
    await create(db, 0, 1)
    async with db.changes(durable="d", **CREATED) as events:
        await anext(events)
        following = asyncio.create_task(refused(anext(events)))
        await log_of(db).request("CONSUMER.DELETE", "d")
        assert "deleted" in str(await following)
    for durable in (None, "e"):
        own = await lapse_server.open()
        await own.create_collection("c")
        async with own.changes(durable=durable, from_="start") as events:
            await anext(events)
            await own._requests.nc.close()
            e = await refused(anext(events))
            assert facts(e)[:2] == (503, "unavailable") and "closed" in str(e)


def reader_of(nc: StandIn) -> Durable:
    return Durable(log_of(nc.database()), {"name": "d", "config": {"ack_wait": 3 * 10**9}}, None)


async def test_a_feed_of_a_connection_that_drains_is_refused() -> None:
    async def subscribe(*_: Any, **options: Any) -> None:
        raise nats.ConnectionDrainingError

    nc = StandIn(lambda sent, n: None)
    nc.subscribe = subscribe  # type: ignore[method-assign]
    assert facts(await refused(reader_of(nc).open())) == (503, "unavailable", True)


async def test_a_reader_that_fails_unexpectedly_ends_the_feed() -> None:
    async def publish(*_: Any) -> None:
        raise ZeroDivisionError

    nc = StandIn(lambda sent, n: None)
    nc.publish = publish  # type: ignore[method-assign]
    reader = reader_of(nc)
    await reader.open()
    async with asyncio.timeout(5):
        with pytest.raises(ZeroDivisionError):
            await reader.next()


async def test_a_handle_that_is_cancelled_again_while_it_ends_leaves_nothing(db: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(db, 0, 1)
    before = asyncio.all_tasks()
    started, ending = asyncio.Event(), asyncio.Event()

    async def handler(event: lapse.Event) -> None:
        started.set()
        await asyncio.Event().wait()

    async def end(_: object) -> None:
        ending.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("lapse.handle._Counter.end", end)
    task = asyncio.create_task(db.handle(handler, durable="d", poison=(2, handler), **CREATED))  # type: ignore[arg-type]
    for reached in (started, ending):
        await reached.wait()
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before
    assert await ids(db, durable="d", until="now", **CREATED) == ["0"]


async def test_a_feed_goes_on_without_its_consumer_and_after_cuts_without_gaps_or_repeats(lapse_server: Server, db: TestDatabase) -> None:
    await create(db, 0, 1000)
    seen: list[str | None] = []
    async with (
        Proxy(urlsplit(lapse_server.url).port or 0) as proxy,
        lapse.connect(f"nats://127.0.0.1:{proxy.port}", database=db.database) as cut,
        cut.changes(until="now", **CREATED) as events,
    ):
        async for event in events:
            seen.append(event.id)
            if len(seen) in (300, 600):
                proxy.cut()
            if len(seen) == 450:
                [info] = await readers(db)
                await log_of(db).request("CONSUMER.DELETE", info["name"])
    assert seen == texts(0, 1000)
    assert await readers(db) == []


@pytest.mark.parametrize(("size", "most"), [(10, 500), (1 << 20, 16)])
@pytest.mark.parametrize("durable", [None, "d"])
async def test_at_most_500_events_or_16_mib_are_read_ahead(db: TestDatabase, durable: str | None, size: int, most: int) -> None:
    step = 1 if size > 1000 else 500
    for n in range(0, 1500 if size < 1000 else 40, step):
        await create(db, n, n + step, text="x" * size)
    seen, ahead = 0, 0
    async with db.changes(durable=durable, until="now", **CREATED) as events:
        async for _ in events:
            seen += 1
            if seen % (most // 2) == 0:
                await asyncio.sleep(0.05)  # the reader fetches what it may
                info = await log_of(db).consumer(durable) if durable else (await readers(db))[0]
                ahead = max(ahead, (info or {})["delivered"]["consumer_seq"] - seen)
    assert most / 4 <= ahead <= most


async def test_workers_handle_documents_at_the_same_time_and_the_events_of_each_in_order(db: TestDatabase) -> None:
    documents = list("abcdefgh")
    await db.collection("c").batch(lapse.Op.upsert(id, {}) for _ in range(12) for id in documents)
    seen: dict[str | None, list[int]] = {}
    running = most = 0
    met = asyncio.Event()

    async def handler(event: lapse.Event) -> None:
        nonlocal running, most
        seen.setdefault(event.id, []).append(event.seq)
        running += 1
        most = max(most, running)
        if running == 2:
            met.set()
        if len(seen[event.id]) > 1:
            await met.wait()  # pulls grow from one event, so the first ones may be alone
        running -= 1

    types = ["DocumentCreated", "DocumentReplaced"]
    await db.handle(handler, durable="d", from_="start", until="now", workers=4, types=types)
    assert 2 <= most <= 4
    assert len(seen) == 8 and all(len(seqs) == 12 and seqs == sorted(seqs) for seqs in seen.values())
    assert await ids(db, durable="d", until="now", types=types) == []


async def test_an_event_without_a_document_is_handled_alone(db: TestDatabase) -> None:
    await create(db, 0, 4)
    await db.replace_collection("c", default_ttl="1h")
    await db.collection("c").upsert("0", {})
    order: list[str] = []
    running = 0

    async def handler(event: lapse.Event) -> None:
        nonlocal running
        assert running == 0 or event.id is not None
        running += 1
        await asyncio.sleep(0)
        order.append(event.type)
        running -= 1

    await db.handle(handler, durable="d", from_="start", until="now", workers=8)
    assert (order[0], order.index("CollectionReplaced"), len(order)) == ("CollectionCreated", 5, 7)


async def test_an_event_whose_handler_fails_too_often_is_put_aside(db: TestDatabase) -> None:
    await create(db, 0, 3)
    tries: list[str | None] = []
    aside: list[str] = []

    async def handler(event: lapse.Event) -> None:
        tries.append(event.id)
        if event.id == "1":
            raise RuntimeError("bad luck")

    async def quarantine(event: lapse.Event, error: BaseException) -> None:
        aside.append(f"{event.id}: {error}")

    await db.handle(handler, durable="d", until="now", poison=(2, quarantine), **CREATED)
    assert (tries, aside) == (["0", "1", "1", "2"], ["1: bad luck"])


async def test_an_error_of_the_poison_handler_and_a_cancellation_end_the_feed(db: TestDatabase) -> None:
    await create(db, 0, 2)

    async def failing(event: lapse.Event, *_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await db.handle(failing, durable="d", poison=(1, failing), **CREATED)
    started = asyncio.Event()
    ended: list[str | None] = []

    async def waiting(event: lapse.Event) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(event.id)

    task = asyncio.create_task(db.handle(waiting, durable="d", **CREATED))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["0"]
    assert await ids(db, durable="d", until="now", **CREATED) == ["0", "1"]
    for options in ({"workers": 0}, {"workers": 1001}, {"poison": (0, failing)}):
        assert (await refused(db.handle(failing, durable="d", **options))).code == 400  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="durable"):
        await db.handle(failing)


async def test_tries_are_counted_in_the_consumer_and_a_running_one_is_a_crash(lapse_server: Server, db: TestDatabase) -> None:
    await create(db, 0, 2)
    first = (await db.collection("c").get("0") or pytest.fail()).seq
    aside: list[str] = []

    async def quarantine(event: lapse.Event, error: BaseException) -> None:
        aside.append(f"{event.id}: {error}")

    for life in (1, 2):  # the handler's process ends: its connection, that is
        async with lapse.connect(lapse_server.url, database=db.database) as dying:

            async def handler(event: lapse.Event, dying: lapse.Database = dying) -> None:
                await dying._requests.nc.close()
                await asyncio.Event().wait()

            with suppress(lapse.LapseError):
                await dying.handle(handler, durable="d", poison=(2, quarantine), ack_wait=1, **CREATED)
        if life == 2:
            info = await log_of(db).consumer("d")
            assert info and json.loads(info["config"]["metadata"]["lapse.tries"]) == {"seq": first, "failed": 1, "running": True}
    seen: list[str | None] = []

    async def last(event: lapse.Event) -> None:
        seen.append(event.id)

    await db.handle(last, durable="d", until="now", poison=(2, quarantine), **CREATED)
    assert seen == ["1"]
    assert aside == [f"0: event {first}: the process ended while its handler ran, in try 2 of 2"]


async def test_events_have_the_trace_contexts_that_the_vectors_say(lapse_server: Server, db: TestDatabase) -> None:
    # The client library cannot send a header twice.
    vectors = [v for v in read("pure/traces.json") if len(dict(v["headers"])) == len(v["headers"])]
    nc = await connect(lapse_server.url)
    for v in vectors:
        await nc.request(f"lapse.{db.database}.api.document.upsert.c.a", b"{}", headers=dict(v["headers"]))
    await nc.close()
    events = await listed(db.changes(from_="start", until="now", types=["DocumentCreated", "DocumentReplaced"]))
    assert [event.traceparent for event in events] == [v["traceparent"] for v in vectors]
