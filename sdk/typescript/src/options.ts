import { wholeSeconds, type Duration } from "./duration.js";
import type { Call } from "./request.js";
import type { Properties, ReadOptions, TouchOptions, WriteOptions } from "./types.js";

/** Returns a moment in unix seconds, rounded up. Throws RangeError if it is none. */
export function secondsOf(moment: Date): number {
  const s = Math.ceil(moment.getTime() / 1000);
  if (Number.isNaN(s)) {
    throw new RangeError("the date is invalid");
  }
  return s;
}

/** Returns a time to live as it is sent. Throws RangeError if it can't be one. */
export function ttlOf(ttl: Duration | "never" | null | undefined): number | null | undefined {
  return ttl === "never" ? -1 : ttl === null || ttl === undefined ? ttl : wholeSeconds(ttl);
}

/** Returns a document or patch with the option ttl, which replaces its member. */
export function withTtl(value: unknown, ttl: WriteOptions["ttl"]): unknown {
  const object = typeof value === "object" && value !== null && !Array.isArray(value);
  return ttl === undefined || !object ? value : { ...value, ttl: ttlOf(ttl) };
}

/** Returns the body of a touch, undefined for none. */
export function touchOf(minAge: TouchOptions["minAge"], content?: boolean): object | undefined {
  return minAge === undefined && !content ? undefined : { minAge: minAge === undefined ? undefined : wholeSeconds(minAge), content };
}

/** Returns the headers of a write. Throws RangeError for a moment that can't be. */
export function writeHeaders({ ifMatch, msgId, expireAt, keepDeadline }: WriteOptions): Call["headers"] {
  return {
    "If-Match": ifMatch,
    "Nats-Msg-Id": msgId,
    "Lapse-Expire-At": expireAt && String(secondsOf(expireAt)),
    "Lapse-Keep-Deadline": keepDeadline ? "true" : undefined,
  };
}

/** Returns the headers of a read. */
export function readHeaders({ minSeq }: ReadOptions): Call["headers"] {
  return { "Lapse-Min-Seq": minSeq === undefined ? undefined : String(minSeq) };
}

/** Returns the properties of a collection as they are sent. */
export function propertiesOf(p: Properties): object {
  return { ...p, defaultTtl: ttlOf(p.defaultTtl), warnBefore: p.warnBefore === null || p.warnBefore === undefined ? p.warnBefore : wholeSeconds(p.warnBefore) };
}
