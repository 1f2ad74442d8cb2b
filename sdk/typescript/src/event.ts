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
  id?: string;
  previous?: number | string;
  deadline?: number;
  ttl?: number;
  rule?: string;
  restored?: number | string;
  cause?: string;
  traceparent?: string;
  body?: unknown;
}

/** Returns the event of a line. */
export function eventOf<T>({ time, previous, deadline, restored, body, ...rest }: Line): Event<T> {
  return {
    ...rest,
    time: new Date(time),
    ...(previous !== undefined && { previous: String(previous) }),
    ...(deadline !== undefined && { deadline: new Date(deadline * 1000) }),
    ...(restored !== undefined && { restored: String(restored) }),
    ...(body !== undefined && { value: (rest.id === undefined ? body : withoutSystem(body as object)) as T }),
  };
}

/** Returns a document without the members that lapse adds in replies. */
function withoutSystem({ _ts, _etag, ...document }: { _ts?: unknown; _etag?: unknown }): object {
  return document;
}

/** Returns the event in a message of the log, undefined for an internal one. */
export function decodeEvent<T>({ seq, msg }: Delivery, parse: (text: string) => unknown): Event<T> | undefined {
  const [collection, type] = msg.subject.split(".").slice(-2) as [string, string];
  if (collection === "_") {
    return undefined;
  }
  const line: Line = { seq, time: Number(msg.headers?.get("Lapse-Time")), type, collection };
  const id = msg.headers?.get("Lapse-Id");
  if (id) {
    line.id = decodeURIComponent(id);
  }
  for (const name of ["previous", "rule", "restored", "cause", "traceparent"] as const) {
    const value = msg.headers?.get(name === "traceparent" ? name : "Lapse-" + name[0]!.toUpperCase() + name.slice(1));
    if (value) {
      line[name] = value;
    }
  }
  for (const name of ["deadline", "ttl"] as const) {
    const value = msg.headers?.get("Lapse-" + name[0]!.toUpperCase() + name.slice(1));
    if (value) {
      line[name] = Number(value);
    }
  }
  if (msg.data.length > 0) {
    line.body = parse(msg.string());
  }
  return eventOf(line);
}
