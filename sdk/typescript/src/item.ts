import type { MsgHdrs } from "@nats-io/nats-core";
import type { CollectionInfo, Item } from "./types.js";
import type * as wire from "./wire.generated.js";

type Lifetime = Pick<Item<unknown>, "deadline" | "rule" | "held" | "reason">;

/** Returns a moment of unix seconds. */
export function dateOf(seconds: number): Date {
  return new Date(seconds * 1000);
}

/** Returns the item of a document, its body read from JSON. */
export function itemOf<T>(body: any, lifetime: Lifetime): Item<T> {
  const { _ts, _etag, ...value } = body;
  return { id: value.id, value, etag: _etag, seq: Number(_etag), modified: dateOf(_ts), ...lifetime };
}

/** Returns the lifetime in the headers of a reply. */
export function lifetimeOf(headers: MsgHdrs): Lifetime {
  return lifetime(headers.get("Lapse-Deadline") || undefined, headers.get("Lapse-Rule") || undefined, headers.has("Lapse-Hold") ? headers.get("Lapse-Hold") : undefined);
}

/** Returns a lifetime of a deadline in unix seconds, a rule, and the reason of a hold. */
export function lifetime(deadline?: number | string | null, rule?: string, hold?: string): Lifetime {
  return {
    deadline: deadline === undefined || deadline === null ? null : dateOf(Number(deadline)),
    rule: (rule as Lifetime["rule"]) ?? null,
    held: hold !== undefined,
    ...(hold !== undefined && { reason: hold }),
  };
}

/** Returns a collection of a reply. */
export function infoOf({ id, _ts, _etag, defaultTtl, warnBefore = null as any, metadata = {}, ...rest }: wire.CollectionWithSize | wire.Collection): CollectionInfo {
  return { name: id, ...rest, defaultTtl: defaultTtl === -1 ? "never" : defaultTtl, warnBefore, metadata, modified: dateOf(_ts), etag: _etag };
}
