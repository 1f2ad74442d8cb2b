"""Events of the log, and the messages that bring them."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from nats.aio.msg import Msg

from .types import Event
from .values import moment_of, moment_of_ms


@dataclass(frozen=True)
class Delivery:
    """A message of the log, as JetStream delivers it.

    `seq` is the log sequence, `number` the number of the delivery, counted by the consumer,
    `times` how often this message was delivered, this time included, `pin` that with which a
    durable's consumer delivered it, and `size` the bytes of the body.
    """

    seq: int
    number: int
    times: int
    pin: str
    size: int
    msg: Msg


def delivery_of(msg: Msg) -> Delivery | None:
    """Returns where a message stands in the log, None for a message of JetStream itself."""
    if not msg.reply.startswith("$JS.ACK."):
        return None  # a publisher can set a Status header, but not the reply subject
    tokens = msg.reply.split(".")
    times, seq, number = map(int, tokens[4:7] if len(tokens) < 11 else tokens[6:9])
    return Delivery(seq, number, times, (msg.headers or {}).get("Nats-Pin-Id", ""), len(msg.data), msg)


def event_of(line: dict[str, Any]) -> Event:
    """Returns the event of a line of `history`. A document is without the members that lapse adds in replies."""
    time, id, body = line["time"], line.get("id"), line.get("body")
    previous, restored, deadline, ttl = (line.get(name) for name in ("previous", "restored", "deadline", "ttl"))
    if id is not None and body:
        body = {name: member for name, member in body.items() if name not in ("_ts", "_etag")}
    return Event(
        seq=line["seq"],
        time=datetime.fromisoformat(time) if isinstance(time, str) else moment_of_ms(time),
        type=line["type"],
        collection=line["collection"],
        id=id,
        previous=previous and str(previous),
        deadline=deadline and moment_of(int(deadline)),
        ttl=ttl and timedelta(seconds=int(ttl)),
        rule=line.get("rule"),
        restored=restored and str(restored),
        cause=line.get("cause"),
        traceparent=line.get("traceparent"),
        value=body,
    )


def decode_event(d: Delivery) -> Event | None:
    """Returns the event in a message of the log, None for an internal one."""
    collection, type = d.msg.subject.split(".")[-2:]
    if collection == "_":
        return None
    headers = {name: value for name, value in (d.msg.headers or {}).items() if value}
    names = ("Previous", "Deadline", "Ttl", "Rule", "Restored", "Cause")
    line = {name.lower(): headers.get(f"Lapse-{name}") for name in names}
    return event_of(
        {
            **line,
            "seq": d.seq,
            "time": int(headers["Lapse-Time"]),
            "type": type,
            "collection": collection,
            "id": unquote(headers.get("Lapse-Id", "")) or None,
            "traceparent": headers.get("traceparent"),
            "body": json.loads(d.msg.data) if d.msg.data else None,
        }
    )
