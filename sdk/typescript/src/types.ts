import type { Duration } from "./duration.js";

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
  traceparent?: string;
  /** The body: a document without `_ts` and `_etag`, properties, or a rejection. */
  value?: T;
}

/** Which events a feed has. */
export interface FeedOptions {
  /** The name under which the position is kept. Readers with one name share the events. */
  durable?: string;
  /** Events of this collection only. */
  collection?: string;
  /** Events of these types only. */
  types?: string[];
  /** The first event: a sequence, a time, or the beginning of the log. By default, the next event. */
  from?: number | Date | "start";
  /** The feed ends before this sequence or time, or with the events that are there now. */
  until?: number | Date | "now";
  /** How long an event may be unacknowledged before it is delivered again; 30 s by default. */
  ackWait?: Duration;
  /** Ends the feed. */
  signal?: AbortSignal;
}
