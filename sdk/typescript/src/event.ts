import type { Msg } from "@nats-io/nats-core";
import type { Event } from "./types.js";

/** A message of the log, as JetStream delivers it. */
export interface Delivery {
  /** The log sequence. */
  seq: number;
  /** The number of the delivery, counted by the consumer. */
  number: number;
  /** Deliveries of this message, this one included. */
  times: number;
  /** The pin with which a durable's consumer delivered it. */
  pin: string;
  /** Bytes of the body. */
  size: number;
  msg: Msg;
}

/** Returns where a message stands in the log, undefined for a message of JetStream itself. */
export function deliveryOf(msg: Msg): Delivery | undefined {
  if (!msg.reply?.startsWith("$JS.ACK.")) {
    return undefined; // a publisher can set a Status header, but not the reply subject
  }
  const tokens = msg.reply.split(".");
  const [times, seq, number] = tokens.slice(tokens.length < 11 ? 4 : 6).map(Number) as [number, number, number];
  return { seq, number, times, pin: msg.headers?.get("Nats-Pin-Id") ?? "", size: msg.data.length, msg };
}

/** An event as `history` returns it, with the deadline in Unix seconds. */
export interface Line {
  seq: number;
  /** RFC 3339, or milliseconds since 1970. */
  time: string | number;
  type: string;
  collection: string;
  id?: string | undefined;
  previous?: number | string | undefined;
  deadline?: number | undefined;
  ttl?: number | undefined;
  rule?: string | undefined;
  restored?: number | string | undefined;
  cause?: string | undefined;
  traceparent?: string | undefined;
  body?: unknown | undefined;
}

/** Returns the event of a line. A document is without the members that lapse adds in replies. */
export function eventOf<T>({ time, previous, deadline, restored, body, ...rest }: Line): Event<T> {
  const { _ts, _etag, ...document } = (body ?? {}) as { _ts?: unknown; _etag?: unknown };
  const event = {
    ...rest,
    time: new Date(time),
    previous: previous && String(previous),
    deadline: deadline && new Date(deadline * 1000),
    restored: restored && String(restored),
    value: body && (rest.id === undefined ? body : document),
  };
  return Object.fromEntries(Object.entries(event).filter(([, member]) => member !== undefined)) as unknown as Event<T>;
}

/** Returns the event in a message of the log, undefined for an internal one. */
export function decodeEvent<T>({ seq, msg }: Delivery, parse: (text: string) => unknown): Event<T> | undefined {
  const [collection, type] = msg.subject.split(".").slice(-2) as [string, string];
  if (collection === "_") {
    return undefined;
  }
  const text = (name: string) => msg.headers?.get(name) || undefined;
  const number = (name: string) => (text(name) ? Number(text(name)) : undefined);
  return eventOf({
    ...{ seq, time: Number(text("Lapse-Time")), type, collection, id: decodeURIComponent(text("Lapse-Id") ?? "") || undefined },
    ...{ previous: text("Lapse-Previous"), deadline: number("Lapse-Deadline"), ttl: number("Lapse-Ttl"), rule: text("Lapse-Rule") },
    ...{ restored: text("Lapse-Restored"), cause: text("Lapse-Cause"), traceparent: text("traceparent") },
    body: msg.data.length > 0 ? parse(msg.string()) : undefined,
  });
}
