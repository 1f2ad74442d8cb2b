"""Runs the files of schema/vectors about events and durables."""

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
import vectors
from standin import Sent, StandIn

from lapse.durable import Durable
from lapse.event import Delivery, decode_event
from lapse.feed import Choice
from lapse.handle import tries_of
from lapse.log import Log
from lapse.window import Inquiry, Window, follows, next_group


def delivery(seq: int, number: int = 0, times: int = 1, pin: str = "", bytes: int = 0, msg: Any = None) -> Delivery:
    return Delivery(seq, number, times, pin, bytes, msg)


windows = vectors.read("pure/windows.json")


@pytest.mark.parametrize("v", windows, ids=vectors.names(windows))
def test_window(v: dict[str, Any]) -> None:
    w = Window(True)
    q: Inquiry | None = None
    for i, s in enumerate(v["steps"]):
        take = w.take
        if "deliver" in s:
            w.add(delivery(**s["deliver"]))
        elif "ack" in s:
            w.remove(s["ack"])
        elif "lost" in s:
            w.drop()
        elif "ask" in s:
            q = w.inquire()
        elif "answer" in s:
            asked, answer = q, s["answer"]
            assert asked
            is_first = follows(asked, answer["ack_floor"]) or answer.get("first") == asked.first.seq

            def take(asked: Inquiry = asked, is_first: bool = is_first, pending: int = answer["num_ack_pending"]) -> Delivery | None:
                return w.settle(asked, is_first, pending)
        elif "pull" in s:
            assert w.may_pull(s["pull"]) == s["may"], f"step {i}"
        if "next" in s or "answer" in s:
            d = take()
            assert (d and d.seq) == s.get("next"), f"step {i}"


def test_a_pull_brings_at_most_what_may_wait() -> None:
    w = Window(True)
    assert w.pull(1) == {"batch": 1}
    assert w.pull(8) == {"batch": 8}
    assert w.pull(500) == {"batch": 500, "max_bytes": 16 << 20}
    w.add(delivery(1, 1, bytes=1 << 20))
    assert w.pull(500) == {"batch": 499, "max_bytes": 15 << 20}
    w.add(delivery(2, 2, bytes=8 << 20))
    assert w.pull(500) == {"batch": 3}
    w.add(delivery(3, 3, bytes=8 << 20))
    assert w.pull(500) == {"batch": 1}


pulls = vectors.read("pure/pulls.json")


@pytest.mark.parametrize("v", pulls, ids=vectors.names(pulls))
def test_pulls(v: dict[str, Any]) -> None:
    size = 1
    for i, p in enumerate(v["pulls"]):
        assert size == p["size"], f"pull {i}"
        if "received" in p:
            size = next_group(size, p["received"], p["bytes"], p.get("redelivered", False), p["received"] >= size)


tries = vectors.read("pure/tries.json")


@pytest.mark.parametrize("v", tries, ids=vectors.names(tries))
def test_tries(v: dict[str, Any]) -> None:
    assert tries_of(v.get("tries"), v["seq"], v["times"], v["after"]) == (v["failed"], v["crashed"])


events = list(enumerate(vectors.read("pure/events.json"), 1))


@pytest.mark.parametrize(("seq", "v"), events, ids=vectors.names([v for _, v in events]))
def test_event(seq: int, v: dict[str, Any]) -> None:
    msg = SimpleNamespace(subject=f"lapse.main.events.{v['subject']}", headers=v["headers"], data=v["body"].encode())
    event = decode_event(delivery(seq, msg=msg))
    vectors.check([] if event is None else [vectors.plain(event)], v["want"])


def log_of(existing: dict[str, Any] | None, created: dict[str, Any]) -> tuple[StandIn, Log]:
    """Returns a log with three events, and perhaps a consumer."""

    def refusal(code: int) -> dict[str, Any]:
        return {"error": {"code": 404, "err_code": code, "description": "not found"}}

    def answer(sent: Sent) -> Any:
        if sent.subject.startswith("$JS.API.STREAM.INFO"):
            return {"state": {"first_seq": 1, "last_seq": 3}}
        if sent.subject.startswith("$JS.API.STREAM.MSG.GET"):
            seq = sent.body["seq"]
            hdrs = base64.b64encode(f"NATS/1.0\r\nLapse-Time: {946684800000 + seq * 1000}\r\n\r\n".encode()).decode()
            return refusal(10037) if seq > 3 else {"message": {"seq": seq, "hdrs": hdrs}}
        if sent.subject.startswith("$JS.API.CONSUMER.CREATE"):
            created.update(sent.body["config"])
            return {"name": created["name"], "config": created}
        return {"name": existing["durable_name"], "config": {"priority_policy": "none", **existing}} if existing else refusal(10014)

    nc = StandIn(lambda sent, n: {"headers": {}, "body": json.dumps(answer(sent))})
    return nc, Log(nc.database()._requests, None)


consumers = vectors.read("pure/consumers.json")


@pytest.mark.parametrize("v", consumers, ids=vectors.names(consumers))
async def test_consumer(v: dict[str, Any]) -> None:
    created: dict[str, Any] = {}
    nc, log = log_of(v.get("existing"), created)

    async def opening() -> dict[str, Any]:
        return await Choice(**vectors.options(v["options"])).consumer(log)

    if "want" in v:
        vectors.check(await vectors.result_of(SimpleNamespace(opening=opening), {"do": "opening"}), v["want"])
        return
    info = await opening()
    got = {"max_deliver": -1, **info["config"]}
    got["filter_subjects"] = sorted(got.get("filter_subjects") or [got.get("filter_subject")])
    vectors.check({name: got[name] for name in v["consumer"]}, v["consumer"])
    if "pull" in v:
        reader = Durable(log, info, None)
        await reader.open()
        body = await nc.published
        await reader.stop()
        for task in reader._tasks:
            task.cancel()
        vectors.check(body, v["pull"])
        assert body["expires"] < info["config"]["ack_wait"] / 2
