import { isDeepStrictEqual } from "node:util";
import type { SessionData } from "express-session";
import { LapseError } from "./errors.js";
import type { Item } from "./types.js";

/** The longest time to live of a document, in seconds: 68 years. */
export const longest = 2 ** 31 - 1;

/** A session as it is stored: its data, and in `_session` what a document can't have in its place. */
export type SessionDocument = SessionData & { _session?: { end: number | undefined; members: object } };

/** A version of a session, with its time to live in seconds, and its absolute end in unix seconds by the clock of the log. */
export type Stored = Pick<Item<unknown>, "etag" | "modified" | "deadline" | "held"> & { data: SessionData; ttl: number | undefined; end: number | undefined };

/** Returns the document of a session. */
export function documentOf(data: SessionData, end?: number): SessionDocument {
  const { id, ttl, _ts, _etag, _session, ...own } = data as any;
  return { ...own, _session: { end, members: { id, ttl, _ts, _etag, _session } } };
}

/** Returns the session of a document. */
export function storedOf({ value, etag, modified, deadline, held }: Item<SessionDocument>): Stored {
  const { id, ttl, _session, ...own } = value as any;
  return { etag, modified, deadline, held, data: { ...own, ..._session?.members }, ttl, end: _session?.end };
}

/** Returns the seconds that a session lives without a request, undefined if its cookie has no `maxAge`. Below 1 it has ended. */
export function idleOf({ cookie: { originalMaxAge, expires, maxAge } }: SessionData): number | undefined {
  const ms = typeof originalMaxAge === "number" ? originalMaxAge : expires ? new Date(expires).getTime() - Date.now() : maxAge;
  return typeof ms === "number" && !Number.isNaN(ms) ? Math.min(Math.ceil(ms / 1000), longest) : undefined;
}

/** Reports whether a session expires at its absolute end. */
export const isLast = ({ deadline, end = Infinity }: Stored): boolean => deadline !== null && deadline.getTime() >= end * 1000;

/** Reports whether two sessions have the same content and cookie, whenever the cookie was sent. */
export function same(a: SessionData, b: SessionData): boolean {
  const lasting = (s: SessionData) => ({ ...s, cookie: { ...s.cookie, originalMaxAge: idleOf(s), expires: null } });
  return isDeepStrictEqual(lasting(a), lasting(b));
}

/** Reports whether an error is a LapseError of a name. */
export const isNamed = (err: unknown, name: string): err is LapseError => err instanceof LapseError && err.error === name;

const texts = { document_not_found: "the session has ended: log in again", precondition_failed: "another request has changed the session: load it again" };

/** Throws an error in the words of sessions. */
export function explain(err: unknown): never {
  const text = err instanceof LapseError && texts[err.error as keyof typeof texts];
  throw text ? new LapseError(err.code, err.error, text) : err;
}

/** Throws an error unless it says that the session has ended. */
export const unlessEnded = (err: unknown): void => void (isNamed(err, "document_not_found") || explain(err));
