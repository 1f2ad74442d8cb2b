"""Requests: what is sent again, and what an error says."""

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from nats import errors as nats
from process import Proxy
from standin import StandIn, reply

import lapse
from lapse.log import Log
from lapse.testing import Server, TestDatabase

OK = reply(200, '{"id":"a","_ts":1,"_etag":"7"}')
UNAVAILABLE = reply(503, '{"code":503,"error":"unavailable","message":"no writer"}')


async def refused(call: Awaitable[Any]) -> lapse.LapseError:
    with pytest.raises(lapse.LapseError) as e:
        await call
    return e.value


def facts(e: lapse.LapseError) -> tuple[int, str, bool]:
    return e.code, e.error, e.retryable


async def test_a_write_is_sent_again_under_one_id_until_it_is_answered() -> None:
    answers = [nats.TimeoutError(), nats.NoRespondersError(), UNAVAILABLE, OK, OK]
    nc = StandIn(lambda sent, n: answers[n - 1])
    assert (await nc.database().collection("c").upsert("a", {"n": 1})).etag == "7"
    assert len(nc.sent) == 4 and nc.sent[0].headers["Nats-Msg-Id"]
    assert all(sent == nc.sent[0] for sent in nc.sent)
    await nc.database().collection("c").upsert("a", {"n": 1})
    assert nc.sent[4].headers != nc.sent[0].headers


async def test_a_write_that_is_refused_after_a_lost_reply_is_refused() -> None:
    failed = reply(412, '{"code":412,"error":"precondition_failed","message":"m"}')
    nc = StandIn(lambda sent, n: nats.TimeoutError() if n == 1 else failed)
    e = await refused(nc.database().collection("c").delete("a", if_match="3", msg_id="mine"))
    assert (*facts(e), str(e)) == (412, "precondition_failed", False, "m")
    assert nc.sent[1].headers == {"If-Match": "3", "Nats-Msg-Id": "mine"}


@pytest.mark.parametrize("then", [nats.TimeoutError(), nats.NoRespondersError(), UNAVAILABLE], ids=["lost", "nobody", "unavailable"])
async def test_a_write_without_an_answer_is_a_504_at_its_timeout(then: Any) -> None:
    nc = StandIn(lambda sent, n: nats.TimeoutError() if n == 1 else then)
    e = await refused(nc.database(timeout=0.25).collection("c").upsert("a", {}))
    assert facts(e) == (504, "timeout", True) and "may have been applied" in str(e)
    assert len(nc.sent) > 1


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (nats.NoRespondersError(), (503, "unavailable", True)),
        (UNAVAILABLE, (503, "unavailable", True)),
        (nats.MaxPayloadError(), (413, "too_large", False)),
        (nats.ConnectionClosedError(), (503, "unavailable", True)),
    ],
    ids=["nobody", "unavailable", "too large", "closed"],
)
async def test_nothing_is_sent_again_that_no_process_received_or_that_is_refused(answer: Any, want: Any) -> None:
    nc = StandIn(lambda sent, n: answer)
    assert facts(await refused(nc.database().collection("c").upsert("a", {}))) == want
    assert len(nc.sent) == 1


@pytest.mark.parametrize(
    "answer", [reply(504, '{"code":504,"error":"timeout","message":"m"}'), nats.TimeoutError()], ids=["refused", "lost"]
)
async def test_a_batch_whose_reply_is_lost_may_have_been_applied_and_is_not_sent_again(answer: Any) -> None:
    nc = StandIn(lambda sent, n: answer)
    e = await refused(nc.database().collection("c").batch([lapse.Op.get("a")]))
    assert facts(e) == (504, "timeout", False) and "may have been applied" in str(e)
    assert len(nc.sent) == 1


async def test_a_call_that_waited_for_the_connection_waits_for_a_process_too() -> None:
    answers = [nats.NoRespondersError(), UNAVAILABLE, OK]
    nc = StandIn(lambda sent, n: answers[n - 1])
    nc.is_connected = False
    call = asyncio.create_task(nc.database().collection("c").upsert("a", {}))
    await asyncio.sleep(0)
    nc.is_connected = True
    await nc.event("reconnected")
    assert (await call).etag == "7"
    nc = StandIn(lambda sent, n: nats.NoRespondersError())
    nc.is_connected = False
    call = asyncio.create_task(nc.database(timeout=0.3).collection("c").upsert("a", {}))
    await asyncio.sleep(0)
    nc.is_connected = True
    await nc.event("reconnected")
    assert facts(await refused(call)) == (503, "unavailable", True)
    assert len(nc.sent) > 1


async def test_a_request_to_jetstream_that_waited_waits_for_jetstream_and_for_nothing_else() -> None:
    def refusal(code: int, kind: int) -> dict[str, Any]:
        return {"headers": {}, "body": json.dumps({"error": {"code": code, "err_code": kind, "description": "refused"}})}

    answers = [refusal(503, 10008), refusal(404, 10014)]
    nc = StandIn(lambda sent, n: answers[n - 1])
    nc.is_connected = False
    call = asyncio.create_task(Log(nc.database()._requests, None).consumer("d"))
    await asyncio.sleep(0)
    nc.is_connected = True
    await nc.event("reconnected")
    assert await call is None
    assert len(nc.sent) == 2


async def test_a_batch_outlasts_the_return_of_the_connection_and_ends_with_its_loss() -> None:
    nc = StandIn(lambda sent, n: None)
    call = asyncio.create_task(refused(nc.database().collection("c").batch([])))
    await nc.received.wait()
    await nc.event("reconnected")
    done, _ = await asyncio.wait({call}, timeout=0.01)
    assert not done
    await nc.event("disconnected")
    assert facts(await call) == (504, "timeout", False)


async def test_a_cancellation_that_nats_py_swallows_while_it_flushes_is_raised() -> None:
    async def publish(*_: Any) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    nc = StandIn(lambda sent, n: None)
    nc.publish = publish  # type: ignore[method-assign]
    task = asyncio.create_task(Log(nc.database()._requests, None).publish("a"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_error_passes_between_processes() -> None:
    e = pickle.loads(pickle.dumps(lapse.LapseError(504, "timeout", "m", False)))
    assert (*facts(e), str(e)) == (504, "timeout", False, "m")


async def test_what_nats_does_not_permit_is_an_error_at_once() -> None:
    nc = StandIn(lambda sent, n: None)
    call = asyncio.create_task(refused(nc.database().collection("c").get("A")))
    await nc.received.wait()
    text = 'nats: permissions violation for publish to "lapse.main.api.document.get.c.a"'  # nats-py has it in lower case
    await nc.event("error", nats.Error(text))
    e = await call
    assert facts(e) == (503, "unavailable", False) and text in str(e)


async def test_reads_include_the_earlier_replies_or_min_seq() -> None:
    nc = StandIn(lambda sent, n: OK)
    plain = nc.database().collection("c")
    await plain.upsert("a", {})
    await plain.get("a")
    await plain.get("a", min_seq=9)
    session = nc.database(read_your_writes=True).collection("c")
    for min_seq in (None, None, 9, 3):
        await session.get("a", min_seq=min_seq)
    assert [sent.headers.get("Lapse-Min-Seq") for sent in nc.sent[1:]] == [None, "9", None, "7", "9", "7"]


async def test_a_page_for_which_the_server_would_scan_too_much_is_asked_for_in_smaller_ones() -> None:
    limits: list[int] = []
    too_large = reply(413, '{"code":413,"error":"too_large","message":"m"}')

    def answer(sent: Any, n: int) -> Any:
        limits.append(sent.body["limit"])
        more = ',"cursor":"next"' if n < 12 else ""
        return too_large if limits[-1] > 30 else reply(200, '{"documents":[{"id":"a","_ts":1,"_etag":"7","_deadline":null}]' + more + "}")

    nc = StandIn(answer)
    items = [item async for item in nc.database().collection("c").query()]
    assert limits == [100, 50, 25, 25, 25, 25, 50, 25, 25, 25, 25, 50, 25]
    assert [item.value for item in items] == [{"id": "a"}] * 9
    nc = StandIn(lambda sent, n: too_large)
    assert (await refused(anext(nc.database().collection("c").query(limit=2).pages()))).code == 413
    assert len(nc.sent) == 2


async def test_a_reply_that_is_not_from_lapse_is_an_error() -> None:
    e = await refused(StandIn(lambda sent, n: {"headers": {}}).database().status())
    assert (e.code, e.error) == (504, "timeout")


@pytest.fixture
async def cut(lapse_server: Server, lapse_db: TestDatabase) -> AsyncIterator[tuple[Proxy, lapse.Database]]:
    """A database behind a proxy."""
    async with (
        Proxy(urlsplit(lapse_server.url).port or 0) as proxy,
        lapse.connect(f"nats://127.0.0.1:{proxy.port}", database=lapse_db.database) as db,
    ):
        yield proxy, db


async def test_a_write_whose_connection_is_cut_is_applied_once(cut: tuple[Proxy, lapse.Database]) -> None:
    proxy, db = cut
    await db.create_collection("c")
    c = db.collection("c")
    proxy.drop_reply = True
    item = await c.create("a", {"n": 1})
    assert not proxy.drop_reply
    proxy.drop_reply = True
    assert await c.get("a") == item
    proxy.drop_reply = True
    assert facts(await refused(c.batch([lapse.Op.delete("a")]))) == (504, "timeout", False)
    assert await c.get("a") is None


async def test_a_cancelled_call_leaves_the_connection_in_use(lapse_db: TestDatabase) -> None:
    await lapse_db.create_collection("c")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await lapse_db.collection("c").get("a", min_seq=1000)
    assert await lapse_db.collection("c").get("a") is None


async def test_a_server_that_is_not_there_is_an_error_in_time() -> None:
    with pytest.raises(lapse.LapseError, match="cannot connect to NATS") as e:
        async with lapse.connect("nats://127.0.0.1:1", timeout=0.3):
            pass
    assert facts(e.value) == (503, "unavailable", True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"servers": "nats://"}, "cannot connect to NATS .*hostname"),
        ({"servers": ["nats://a:b"]}, "cannot connect to NATS .*url"),
        ({"servers": []}, "no address"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": 0.2, "database": "A"}, "database name"),
    ],
    ids=lambda v: str(v)[:40],
)
async def test_bad_arguments_of_a_connection_are_errors(options: dict[str, Any], text: str) -> None:
    with pytest.raises((lapse.LapseError, ValueError), match=text):
        async with lapse.connect(**options):
            pass


async def test_a_cancelled_connect_closes_its_connection() -> None:
    connected, ended = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1024}\r\n')
        await reader.readline()  # CONNECT
        connected.set()
        await reader.read()
        ended.set()
        writer.close()

    async def connect(port: int) -> None:
        async with lapse.connect(f"nats://127.0.0.1:{port}"):
            pass

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        task = asyncio.create_task(connect(server.sockets[0].getsockname()[1]))
        await connected.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await ended.wait()
