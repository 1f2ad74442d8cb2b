import { LapseError } from "./errors.js";
import { itemOf, lifetime } from "./item.js";
import { stringify } from "./json.js";
import { readHeaders, secondsOf } from "./options.js";
import type { Requests } from "./request.js";
import type { CountOptions, Page, QueryOptions } from "./types.js";
import type * as wire from "./wire.generated.js";

/** The number of pages after which a query tries a larger size again. */
const goodPages = 4;

/**
 * Yields the pages of a query. A page that the server refuses with 413, since it would look
 * at too much for it, is asked for again in smaller ones.
 */
export async function* pages<T>(requests: Requests, collection: string, options: QueryOptions): AsyncGenerator<Page<T>, void, void> {
  const { limit, pageSize } = options;
  const most = pageSize ?? (limit === undefined ? 100 : Math.min(limit, 1000));
  let { cursor } = options;
  let remaining = limit ?? Infinity;
  let size = most;
  let good = 0;
  for (;;) {
    const asked = Math.min(size, remaining);
    let reply: any;
    try {
      reply = await send(requests, collection, options, { ...filterOf(options), ...shapeOf(options), limit: asked, cursor: cursor ?? null, deadlines: true });
    } catch (err) {
      if (!(err instanceof LapseError) || err.code !== 413 || err.cause || asked <= 1) {
        throw err; // one of the request itself has a cause
      }
      size = Math.floor(asked / 2);
      good = 0;
      continue;
    }
    cursor = reply.cursor;
    remaining -= reply.documents.length;
    if (++good === goodPages) {
      size = Math.min(2 * size, most);
      good = 0;
    }
    const items = reply.documents.map(({ _deadline, _rule, _hold, ...d }: any) => itemOf<T>(d, lifetime(_deadline, _rule, _hold)));
    yield { items, ...(cursor && { cursor }) };
    if (!cursor || remaining <= 0) {
      return;
    }
  }
}

/** Counts the documents of a query. */
export async function count(requests: Requests, collection: string, options: CountOptions): Promise<number> {
  return (await send(requests, collection, options, { ...filterOf(options), count: true })).count;
}

async function send(requests: Requests, collection: string, options: CountOptions, body: wire.Query): Promise<any> {
  return requests.ask({ tail: `api.query.${collection}`, kind: "read", body: stringify(body)!, headers: readHeaders(options), signal: options.signal });
}

function filterOf({ where, params, idPrefix, due, held }: CountOptions): wire.Query {
  return { where, params, idPrefix, held, due: due && { from: momentOf(due.from), until: momentOf(due.until) } } as wire.Query;
}

function shapeOf({ orderBy, select }: QueryOptions): wire.Query {
  return {
    orderBy: orderBy?.map((o) => (typeof o === "string" ? { path: o } : o)),
    select: select && [...new Set([...select, "/id", "/_etag", "/_ts"])],
  } as wire.Query;
}

function momentOf(moment: Date | number | string | undefined): number | string | undefined {
  return moment instanceof Date ? secondsOf(moment) : moment;
}
