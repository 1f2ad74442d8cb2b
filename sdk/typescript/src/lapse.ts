import type { NatsConnection } from "@nats-io/nats-core";
import { Collection } from "./collection.js";
import { milliseconds } from "./duration.js";
import { changes } from "./feed.js";
import { handle, type Handler, type HandleOptions } from "./handle.js";
import { infoOf } from "./item.js";
import { stringify } from "./json.js";
import { Log } from "./log.js";
import { checkCollection, checkDatabase } from "./names.js";
import { propertiesOf } from "./options.js";
import { Requests } from "./request.js";
import type { CollectionInfo, Event, FeedOptions, Options, Properties, Status } from "./types.js";
import type * as wire from "./wire.generated.js";

/** A client of one database, over a connection that its caller owns. */
export class Lapse {
  readonly database: string;
  /** @internal */
  readonly requests: Requests;
  private readonly log: Log;

  constructor(nc: NatsConnection, options: Options = {}) {
    this.database = options.database ?? "main";
    checkDatabase(this.database);
    this.requests = new Requests(nc, this.database, milliseconds(options.timeout ?? 10), options.readYourWrites ?? false, options.parse ?? JSON.parse, options.tracer);
    this.log = new Log(this.requests, options.apiPrefix?.replace(/\.$/, ""));
  }

  /** Creates a collection. It is a 409 if it is there. */
  async createCollection(name: string, properties: Properties = {}): Promise<CollectionInfo> {
    return this.putCollection("create", name, properties);
  }

  /** Returns a collection, or throws a 404. */
  async getCollection(name: string): Promise<CollectionInfo> {
    checkCollection(name);
    return infoOf(await this.requests.ask({ tail: `api.collection.get.${name}`, kind: "read" }));
  }

  /** Replaces all properties of a collection. Those that are left out get their defaults. */
  async replaceCollection(name: string, properties: Properties, options: { ifMatch?: string } = {}): Promise<CollectionInfo> {
    return this.putCollection("replace", name, properties, options.ifMatch);
  }

  /** Deletes a collection with its documents. */
  async deleteCollection(name: string): Promise<void> {
    checkCollection(name);
    await this.requests.send({ tail: `api.collection.delete.${name}`, kind: "write" });
  }

  /** Returns all collections, ordered by name. */
  async listCollections(): Promise<CollectionInfo[]> {
    const all: CollectionInfo[] = [];
    let cursor: string | undefined;
    do {
      const page: wire.Collections = await this.requests.ask({ tail: "api.collection.list", kind: "read", body: cursor && stringify({ cursor }) });
      all.push(...page.collections.map(infoOf));
      cursor = page.cursor;
    } while (cursor);
    return all;
  }

  /** Returns a handle of a collection, without a request. */
  collection<T = any>(name: string): Collection<T> {
    return new Collection<T>(this.requests, name);
  }

  /** Returns the status of a process that serves the database. */
  async status(): Promise<Status> {
    return this.requests.ask({ tail: "api.status", kind: "read" });
  }

  /** Returns the events of documents that have expired, with their last content. See changes. */
  expirations<T = any>(options: FeedOptions = {}): AsyncIterable<Event<T>> {
    return this.changes({ ...options, types: ["DocumentExpired"] });
  }

  /** Returns the warnings of documents that expire soon, in collections with `warnBefore`. See changes. */
  warnings<T = any>(options: FeedOptions = {}): AsyncIterable<Event<T>> {
    return this.changes({ ...options, types: ["DocumentExpiring"] });
  }

  /**
   * Returns the events of the log in their order, for ever or up to `until`. With `durable`, an
   * event is acknowledged when the loop asks for the next one, and delivered again if the loop
   * ends before. The loop throws the reason of an aborted signal, and else LapseErrors.
   */
  changes<T = any>(options: FeedOptions = {}): AsyncIterable<Event<T>> {
    return changes<T>(this.log, options);
  }

  /**
   * Calls a handler for each event of a feed, and acknowledges the event when it has returned.
   * When it throws, it is called again after 0.1 s, then twice as long each time, up to 10 s.
   * Returns at the end of `until`; throws the reason of an aborted signal, what the poison
   * handler throws, and LapseErrors, when all running handlers have returned.
   */
  async handle<T = any>(handler: Handler<T>, options: HandleOptions<T>): Promise<void> {
    await handle(this.log, handler, options);
  }

  private async putCollection(op: string, name: string, properties: Properties, ifMatch?: string): Promise<CollectionInfo> {
    checkCollection(name);
    return infoOf(await this.requests.ask({ tail: `api.collection.${op}.${name}`, kind: "write", body: stringify(propertiesOf(properties)), headers: { "If-Match": ifMatch } }));
  }
}
