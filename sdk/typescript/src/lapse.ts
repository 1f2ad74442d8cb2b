import type { NatsConnection } from "@nats-io/nats-core";
import { Collection } from "./collection.js";
import { milliseconds } from "./duration.js";
import { infoOf } from "./item.js";
import { stringify } from "./json.js";
import { checkCollection, checkDatabase } from "./names.js";
import { propertiesOf } from "./options.js";
import { Requests } from "./request.js";
import type { CollectionInfo, Options, Properties, Status } from "./types.js";
import type * as wire from "./wire.generated.js";

/** A client of one database, over a connection that its caller owns. */
export class Lapse {
  readonly database: string;
  /** @internal */
  readonly requests: Requests;
  /** @internal The prefix of the JetStream API, where the account imports it. */
  readonly apiPrefix: string | undefined;

  constructor(nc: NatsConnection, options: Options = {}) {
    this.database = options.database ?? "main";
    checkDatabase(this.database);
    this.requests = new Requests(nc, this.database, milliseconds(options.timeout ?? 10), options.readYourWrites ?? false, options.parse ?? JSON.parse);
    this.apiPrefix = options.apiPrefix?.replace(/\.$/, "");
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

  private async putCollection(op: string, name: string, properties: Properties, ifMatch?: string): Promise<CollectionInfo> {
    checkCollection(name);
    return infoOf(await this.requests.ask({ tail: `api.collection.${op}.${name}`, kind: "write", body: stringify(propertiesOf(properties)), headers: { "If-Match": ifMatch } }));
  }
}
