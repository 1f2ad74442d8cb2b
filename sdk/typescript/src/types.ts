import type { Duration } from "./duration.js";
import type { LapseError } from "./errors.js";
import type { Tracer } from "./tracer.js";
import type * as wire from "./wire.generated.js";

/** The status of a process that serves the database. Log times are in milliseconds since 1970. */
export type Status = wire.Status;

/** How many documents expire when. Moments are in seconds since 1970, and a default of -1 is never. */
export type Forecast = wire.Forecast;

/** How a Lapse uses its connection. */
export interface Options {
  /** The name of the database, `main` by default. */
  database?: string;
  /** How long a call waits for its reply, and for a connection that is away; 10 s by default. */
  timeout?: Duration;
  /** Whether a read sees all earlier writes and reads of this Lapse, whichever process answers. */
  readYourWrites?: boolean;
  /** The prefix, such as `LAPSE.API`, below which the account imports the API of the JetStream that has the log. */
  apiPrefix?: string;
  /** Reads the JSON of documents; `JSON.parse` by default. See `parseBigInt`. */
  parse?: (text: string) => unknown;
  /** Observes requests and the handling of events, as `@lapsedb/lapse/otel` does. */
  tracer?: Tracer;
}

/** The properties of a collection. Without a property, it has its default. */
export interface Properties {
  /** How long a document without a `ttl` lives; null, the default, turns TTL off. */
  defaultTtl?: Duration | "never" | null;
  /** How long before each deadline a `DocumentExpiring` is logged; null, the default, for none. */
  warnBefore?: Duration | null;
  indexingPolicy?: { indexingMode?: "consistent" | "lazy" | "none"; includedPaths?: { path: string }[] };
  /** Whether the events of deletes, expiries and warnings have the document; true by default. */
  previousImages?: boolean;
  metadata?: Record<string, string>;
}

/** A collection as of a reply. */
export interface CollectionInfo {
  name: string;
  /** Seconds, `"never"`, or null while TTL is off. */
  defaultTtl: number | "never" | null;
  /** Seconds, or null without warnings. */
  warnBefore: number | null;
  indexingPolicy: { indexingMode: "consistent" | "lazy" | "none"; includedPaths: { path: string }[] };
  previousImages: boolean;
  metadata: Record<string, string>;
  /** The last change of the properties, in whole seconds. */
  modified: Date;
  /** The version of the properties. */
  etag: string;
  /** Live documents, the bytes of their JSON, and how many of them are held: of getCollection only. */
  documents?: number;
  bytes?: number;
  held?: number;
}

export interface ReadOptions {
  /** Answer only from a state that has this log sequence. */
  minSeq?: number;
  signal?: AbortSignal;
}

export interface WriteOptions {
  /** The time to live, counted from this write. It replaces a member `ttl` of the value. */
  ttl?: Duration | "never";
  /** When the document expires, rounded up to a second. */
  expireAt?: Date;
  /** Whether the document keeps the deadline that it has. */
  keepDeadline?: boolean;
  /** Refuses the write unless the live version is this one. */
  ifMatch?: string;
  /** Makes a repeat within two minutes have the same outcome, and change nothing. */
  msgId?: string;
  signal?: AbortSignal;
}

export interface TouchOptions {
  /** Leaves a document as it is that was modified more recently. */
  minAge?: Duration;
  ifMatch?: string;
  msgId?: string;
  signal?: AbortSignal;
}

/** A version of unchanged content. */
export type Touched = Omit<Item<unknown>, "value" | "seq">;

/** One operation of a batch. */
export interface Operation<T> {
  op: "get" | "create" | "upsert" | "replace" | "patch" | "delete" | "touch" | "hold" | "release" | "restore";
  id: string;
  /** The document, or the patch. */
  value?: T | object;
  ttl?: Duration | "never";
  expireAt?: Date;
  keepDeadline?: boolean;
  ifMatch?: string;
  /** Of a touch. */
  minAge?: Duration;
  /** Of a touch: whether the item has the document. */
  content?: boolean;
  /** Of a hold. */
  reason?: string;
  /** Of a restore. */
  version?: string;
}

/**
 * The outcome of an operation. The item of a delete is null, that of a touch without `content`
 * has no value, and that of a hold or release has its id, its lifetime and nothing else.
 */
export type Result<T> = { item: Item<T> | null; error?: undefined } | { item?: undefined; error: LapseError };

/** Which documents a count counts. */
export interface CountOptions extends ReadOptions {
  /** A condition in CEL over `doc` and `params`. */
  where?: string;
  params?: Record<string, unknown>;
  /** Documents whose id begins with this. */
  idPrefix?: string;
  /** Documents with a deadline at or after `from` and before `until`: a Date, unix seconds, or a length of time from now as text. */
  due?: { from?: Date | number | string; until?: Date | number | string };
  /** Held documents only. */
  held?: boolean;
}

export interface QueryOptions extends CountOptions {
  /** JSON pointers. Without them, documents are ordered by id. */
  orderBy?: (string | { path: string; desc?: boolean })[];
  /** The JSON pointers of the members that the values have, besides `id`. */
  select?: string[];
  /** How many documents there are at most; by default all. */
  limit?: number;
  /** How many documents a page has at most, 1 to 1000; by default `limit`, or 100. */
  pageSize?: number;
  /** The page after that which had this cursor. */
  cursor?: string;
}

/** A page of a query. */
export interface Page<T> {
  items: Item<T>[];
  /** Where the next page begins. The last page has none. */
  cursor?: string;
}

export interface ForecastOptions extends ReadOptions {
  /** How far to look ahead, a day by default. */
  next?: Duration;
  /** What to count in one; by default about 24 buckets. */
  bucket?: Duration;
  /** As if the collection had this default. */
  defaultTtl?: Duration | "never" | null;
}

/** A live document as of a reply. */
export interface Item<T> {
  id: string;
  /** The document as stored, `id` included, without `_ts` and `_etag`. */
  value: T;
  /** The version of the document. */
  etag: string;
  /** The log sequence of the version; `minSeq` takes it. */
  seq: number;
  /** The last modification, in whole seconds. */
  modified: Date;
  /** When the document expires; null if it does not. */
  deadline: Date | null;
  /** Where the deadline comes from; null if there is none. */
  rule: "document" | "collection" | null;
  /** Whether the document neither expires nor can be deleted until its release. */
  held: boolean;
  /** The reason of the hold, which may be empty. */
  reason?: string;
}

/** An event of the log. */
export interface Event<T> {
  /** The log sequence. */
  seq: number;
  /** The log time, in milliseconds. */
  time: Date;
  /** The type, such as `DocumentExpired`. */
  type: string;
  collection: string;
  id?: string;
  /** The version that the event ends, or is about. */
  previous?: string;
  deadline?: Date;
  /** The time to live that led to the deadline, in seconds. */
  ttl?: number;
  rule?: string;
  /** The version whose content a restore brought back. */
  restored?: string;
  /** The mutation of JetStream that caused the event. */
  cause?: string;
  /** The W3C trace context of the request or message that made the event. */
  traceparent?: string;
  /** The body: a document without `_ts` and `_etag`, properties, or a rejection. */
  value?: T;
}

/** Which events a feed has. */
export interface FeedOptions {
  /** The name under which the position is kept. Of several readers with one name, one reads and the others wait. */
  durable?: string;
  /** Events of this collection only. */
  collection?: string;
  /** Events of these types only. */
  types?: string[];
  /** The first event: a sequence, a log time, or the beginning of the log; the next event by default. It counts at the first use of `durable`. */
  from?: number | Date | "start";
  /** The feed ends with this sequence, before the first event after this log time, or with the last event that is there now. */
  until?: number | Date | "now";
  /** How long the server waits for a vanished reader of `durable`, 1 s to 1 h; 5 s, or what the first use of the name set. */
  ackWait?: Duration;
  /** Ends the feed. */
  signal?: AbortSignal;
}
