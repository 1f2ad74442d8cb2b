"""Runs schema/vectors."""

import json
from typing import Any

import pytest
import vectors
from standin import StandIn, reply

from lapse import LapseError
from lapse.names import id_of, token_of
from lapse.values import whole_seconds


@pytest.mark.parametrize("v", vectors.read("pure/ids.json"), ids=lambda v: json.dumps(v.get("id", v.get("token")))[:60])
def test_id(v: dict[str, Any]) -> None:
    if v.get("refused"):
        with pytest.raises(LapseError) as e:
            token_of(v["id"]) if "id" in v else id_of(v["token"])
        assert (e.value.code, e.value.error) == (400, "bad_id")
        return
    assert id_of(v["token"]) == v["id"]
    if not v.get("decodes"):
        assert token_of(v["id"]) == v["token"]


@pytest.mark.parametrize("v", vectors.read("pure/lengths.json"), ids=lambda v: repr(v["length"]))
def test_length_of_time(v: dict[str, Any]) -> None:
    if v.get("refused"):
        with pytest.raises(ValueError):
            whole_seconds(v["length"])
    else:
        assert whole_seconds(v["length"]) == v["seconds"]


requests = vectors.read("pure/requests.json")


@pytest.mark.parametrize("v", requests, ids=vectors.names(requests))
async def test_request(v: dict[str, Any]) -> None:
    nc = StandIn(lambda sent, n: reply(404, '{"code":404,"error":"document_not_found","message":"m"}'))
    result = await vectors.result_of(nc.database(), v)
    if "request" in v:
        sent = nc.sent[0]
        got = {"subject": sent.subject.removeprefix("lapse.main.api."), "headers": sent.headers, "body": sent.body or {}}
        vectors.check(got, v["request"])
    else:
        assert not nc.sent
        vectors.check(result, v["want"])


replies = vectors.read("pure/replies.json")


@pytest.mark.parametrize("v", replies, ids=vectors.names(replies))
async def test_reply(v: dict[str, Any]) -> None:
    vectors.check(await vectors.result_of(StandIn(lambda sent, n: v["reply"]).database(), v), v["want"])
