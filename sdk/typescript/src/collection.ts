import { wholeSeconds } from "./duration.js";
import { LapseError } from "./errors.js";
import { eventOf } from "./event.js";
import { batchOf, resultsOf } from "./batch.js";
import { dateOf, itemOf, lifetimeOf } from "./item.js";
import { stringify } from "./json.js";
import { checkCollection, tokenOf } from "./names.js";
import { readHeaders, touchOf, ttlOf, withTtl, writeHeaders } from "./options.js";
import { count, pages } from "./query.js";
import type { Call, Reply, Requests } from "./request.js";
import type {
  CountOptions, Event, Forecast, ForecastOptions, Item, Operation, Page, QueryOptions, ReadOptions, Result, TouchOptions, Touched, WriteOptions,
} from "./types.js";
import type * as wire from "./wire.generated.js";

/** A collection of documents that are a T. */
export class Collection<T = any> {
  /** @internal */
  constructor(private readonly requests: Requests, readonly name: string) {
    checkCollection(name);
  }

  /** Returns a document, or null if it does not live. */
  async get(id: string, options: ReadOptions = {}): Promise<Item<T> | null> {
    return orNull(this.item(this.about("document.get", id, "read", undefined, readHeaders(options), options.signal)));
  }

  /** Stores a new document. It is a 409 if one of the id lives. */
  async create(id: string, value: T, options?: WriteOptions): Promise<Item<T>> {
    return this.write("create", id, value, options);
  }

  /** Creates or replaces a document. */
  async upsert(id: string, value: T, options?: WriteOptions): Promise<Item<T>> {
    return this.write("upsert", id, value, options);
  }

  /** Replaces a document. It is a 404 if it does not live. */
  async replace(id: string, value: T, options?: WriteOptions): Promise<Item<T>> {
    return this.write("replace", id, value, options);
  }

  /** Applies a JSON Merge Patch (RFC 7396), in which null removes a member. It is a 404 if the document does not live. */
  async patch(id: string, patch: object, options?: WriteOptions): Promise<Item<T>> {
    return this.write("patch", id, patch, options);
  }

  /** Deletes a document. It is a 404 if it does not live. */
  async delete(id: string, options: Pick<WriteOptions, "ifMatch" | "msgId" | "signal"> = {}): Promise<void> {
    await this.requests.send(this.about("document.delete", id, "write", undefined, writeHeaders(options), options.signal));
  }

  /** Starts the time to live of a document again, without sending it. It is a 404 if it does not live. */
  async touch(id: string, options: TouchOptions = {}): Promise<Touched> {
    const { text, headers } = await this.requests.send(this.touching(id, options, undefined));
    const touched: wire.Touched = JSON.parse(text);
    return { id, etag: touched._etag, modified: dateOf(touched._ts), ...lifetimeOf(headers) };
  }

  /** Does what touch and get do, in one request. It returns null if the document does not live. */
  async getAndTouch(id: string, options: TouchOptions = {}): Promise<Item<T> | null> {
    return orNull(this.item(this.touching(id, options, true)));
  }

  /** Keeps a document from expiring and from being deleted until its release. */
  async hold(id: string, reason?: string): Promise<void> {
    await this.requests.send(this.about("document.hold", id, "write", reason === undefined ? undefined : { reason }));
  }

  /** Ends a hold. What is overdue expires at once. */
  async release(id: string): Promise<void> {
    await this.requests.send(this.about("document.release", id, "write"));
  }

  /** Creates an expired or deleted document again, with the content of a version, by default its last. */
  async restore(id: string, version?: string): Promise<Item<T>> {
    return this.item(this.about("document.restore", id, "write", version === undefined ? undefined : { version }));
  }

  /** Yields the events of an id, newest first, earlier lives included: all, or up to a limit. It is a 404 if there are none. */
  async *history(id: string, options: { limit?: number; signal?: AbortSignal } = {}): AsyncGenerator<Event<T>, void, undefined> {
    let { limit } = options;
    let cursor: string | undefined;
    do {
      const body = { limit: limit && Math.min(limit, 1000), cursor };
      const page = await this.requests.ask(this.about("history", id, "read", body, {}, options.signal));
      yield* page.events.map(eventOf);
      limit &&= limit - page.events.length;
      cursor = page.cursor;
    } while (cursor && limit !== 0);
  }

  /** Sends operations together. Each succeeds or fails on its own; all changes do if atomic. */
  async batch(operations: Operation<T>[], options: { atomic?: boolean; signal?: AbortSignal } = {}): Promise<Result<T>[]> {
    const call: Call = { tail: `api.batch.${this.name}`, kind: "once", body: stringify(batchOf(operations, options.atomic))!, signal: options.signal };
    return resultsOf(operations, await this.requests.ask(call));
  }

  /** Yields the documents that match, page by page as the loop needs them. */
  query(options: QueryOptions = {}): AsyncIterable<Item<T>> & { pages(): AsyncIterable<Page<T>> } {
    const all = () => pages<T>(this.requests, this.name, options);
    return {
      pages: all,
      async *[Symbol.asyncIterator]() {
        for await (const page of all()) {
          yield* page.items;
        }
      },
    };
  }

  /** Counts the documents that match. */
  async count(options: CountOptions = {}): Promise<number> {
    return count(this.requests, this.name, options);
  }

  /** Counts the documents by the time at which they expire. */
  async forecast(options: ForecastOptions = {}): Promise<Forecast> {
    const { next, bucket, defaultTtl } = options;
    const body = stringify({ next: next && wholeSeconds(next), bucket: bucket && wholeSeconds(bucket), defaultTtl: ttlOf(defaultTtl) })!;
    return this.requests.ask({ tail: `api.forecast.${this.name}`, kind: "read", body, headers: readHeaders(options), signal: options.signal });
  }

  private async write(op: string, id: string, value: unknown, options: WriteOptions = {}): Promise<Item<T>> {
    return this.item(this.about(`document.${op}`, id, "write", withTtl(value, options.ttl), writeHeaders(options), options.signal));
  }

  private touching(id: string, options: TouchOptions, content: true | undefined): Call {
    const body = touchOf(options.minAge, content);
    return this.about("document.touch", id, "write", body, writeHeaders(options), options.signal);
  }

  private about(op: string, id: string, kind: Call["kind"], body?: unknown, headers: Call["headers"] = {}, signal?: AbortSignal): Call {
    return { tail: `api.${op}.${this.name}.${tokenOf(id)}`, kind, body: stringify(body), headers, signal };
  }

  private async item(call: Call): Promise<Item<T>> {
    const { text, headers }: Reply = await this.requests.send(call);
    return itemOf(this.requests.parse(text), lifetimeOf(headers));
  }
}

async function orNull<R>(result: Promise<R>): Promise<R | null> {
  try {
    return await result;
  } catch (err) {
    if (err instanceof LapseError && err.error === "document_not_found") {
      return null;
    }
    throw err;
  }
}
