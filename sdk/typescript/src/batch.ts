import { itemOf, lifetime } from "./item.js";
import { checkId } from "./names.js";
import { secondsOf, touchOf, withTtl } from "./options.js";
import { errorOf } from "./request.js";
import type { Item, Operation, Result } from "./types.js";
import type * as wire from "./wire.generated.js";

/**
 * Returns the body of a batch. Throws RangeError for a length of time or moment that can't be, and
 * a LapseError `bad_id` for an id that JSON cannot have; lapse judges the others.
 */
export function batchOf(operations: Operation<any>[], atomic = false): wire.Batch {
  operations.filter(({ id }) => /\p{Surrogate}/u.test(id)).forEach(({ id }) => checkId(id));
  return {
    operations: operations.map((o) => ({
      op: o.op,
      id: o.id,
      body: bodyOf(o),
      ...(o.ifMatch !== undefined && { ifMatch: o.ifMatch }),
      ...(o.expireAt && { expireAt: secondsOf(o.expireAt) }),
      ...(o.keepDeadline && { keepDeadline: true }),
    })),
    atomic,
  };
}

function bodyOf(o: Operation<any>): unknown {
  switch (o.op) {
    case "touch":
      return touchOf(o.minAge, o.content);
    case "hold":
      return o.reason === undefined ? undefined : { reason: o.reason };
    case "restore":
      return o.version === undefined ? undefined : { version: o.version };
    default:
      return withTtl(o.value, o.ttl);
  }
}

/** Returns the outcomes of operations, of the body of the reply. */
export function resultsOf<T>(operations: Operation<T>[], { results }: wire.BatchResults): Result<T>[] {
  return results.map((r: any, i) => {
    if (r.code >= 400) {
      return { error: errorOf(r.code, r.body) };
    }
    if (!r.body) {
      return { item: null };
    }
    const life = lifetime(r.deadline, r.rule, r.hold);
    if (r.body._etag === undefined) {
      return { item: { id: r.body.id, ...life } as Item<T> };
    }
    const item = itemOf<T>(r.body, life);
    const { op, content } = operations[i]!;
    return { item: op === "touch" && !content ? { ...item, value: undefined as T } : item };
  });
}
