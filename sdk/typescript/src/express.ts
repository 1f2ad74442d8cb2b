import type { Request } from "express";
import session, { type SessionData } from "express-session";
import type { Collection } from "./collection.js";
import { wholeSeconds, type Duration } from "./duration.js";
import { LapseError } from "./errors.js";
import { documentOf, explain, idleOf, isLast, isNamed, longest, same, storedOf, unlessEnded, type SessionDocument, type Stored } from "./session.js";
import type { CountOptions } from "./types.js";

/** How a store keeps its sessions. */
export interface StoreOptions {
  /** Its TTL has to be on: `defaultTtl` is how long a session lives whose cookie has no `maxAge`. */
  collection: Collection<SessionData>;
  /** How old a session is before a request renews it, at most half of its time; by default a tenth of that. */
  touchAfter?: Duration;
  /** When a session ends after its creation, whatever renews it; by default never. */
  absolute?: Duration;
}

/** A session, the version that was loaded or stored last, and the end of the last write. */
type Known = { readonly sid: string; stored?: Stored | undefined; turn?: Promise<unknown> };

/**
 * Keeps the sessions of express-session, each as a document of its data. A save of a session
 * that has ended is a LapseError `document_not_found`, and of two requests that change a session
 * at once the later one gets a LapseError `precondition_failed`. A renewal writes no content.
 */
export class LapseStore extends session.Store {
  private readonly sessions: Collection<SessionDocument>;
  private readonly touchAfter: number | undefined;
  private readonly absolute: number | undefined;
  /** By cookie, which the copies of a session share. */
  private readonly known = new WeakMap<object, Known>();

  /** Throws RangeError for a length of time that is not of whole seconds. */
  constructor({ collection, touchAfter, absolute }: StoreOptions) {
    super();
    this.sessions = collection;
    this.touchAfter = touchAfter === undefined ? undefined : wholeSeconds(touchAfter);
    this.absolute = absolute === undefined ? undefined : wholeSeconds(absolute);
  }

  /** Loads a session; null if it does not live. */
  override get(sid: string, done: (err: any, session?: SessionData | null) => void): void {
    answer(this.read(sid), done);
  }

  /** Stores a session. An object that is neither of a request nor of `get` overwrites. */
  override set(sid: string, session: SessionData, done?: (err?: any) => void): void {
    const data = plain(session);
    answer(this.inTurn(sid, session, (known) => this.save(known, data, "req" in session ? "create" : "upsert")), done);
  }

  /** Renews a session, and stores a change of its cookie. If the session has ended, nothing happens. */
  override touch(sid: string, session?: SessionData, done?: (err?: any) => void): void {
    const cookie = session && plain(session).cookie;
    answer(this.inTurn(sid, session, (known) => this.renew(known, cookie).catch(unlessEnded)), done);
  }

  /** Ends a session. */
  override destroy(sid: string, done?: (err?: any) => void): void {
    answer(this.sessions.delete(sid).catch(unlessEnded), done);
  }

  /** Ends the session of a request, which gets a new one. It fails if another request has ended the session meanwhile. */
  override regenerate(req: Request, done: (err?: any) => any): void {
    const loaded = this.knownOf(req.sessionID, req.session)?.stored;
    const ended = this.sessions.delete(req.sessionID).catch(loaded ? explain : unlessEnded);
    answer(ended.then(() => (req.sessionStore as Express.SessionStore).generate(req)), done);
  }

  /** Ends the sessions that match, such as those of a user, and returns how many it ended. After an error it may be called again. */
  async endAll(which: CountOptions = {}): Promise<number> {
    let count = 0;
    for await (const { items } of this.sessions.query({ ...which, select: ["/id"], pageSize: 1000 }).pages()) {
      const results = items.length > 0 ? await this.sessions.batch(items.map(({ id }) => ({ op: "delete", id }))) : [];
      const errors = results.flatMap(({ error }) => error ?? []);
      errors.forEach(unlessEnded);
      count += results.length - errors.length;
    }
    return count;
  }

  /** @internal */
  override createSession(req: Request, data: SessionData): session.Session & SessionData {
    const known = this.known.get(data.cookie) ?? { sid: req.sessionID };
    const made = super.createSession(req, data);
    this.known.set(made.cookie, known);
    return made;
  }

  private knownOf(sid: string, session: SessionData | undefined): Known | undefined {
    const known = session && this.known.get(session.cookie);
    return known?.sid === sid ? known : undefined;
  }

  /** Calls write after all earlier writes of a session. */
  private inTurn(sid: string, session: SessionData | undefined, write: (known: Known) => Promise<void>): Promise<void> {
    const known = this.knownOf(sid, session) ?? { sid };
    if (session) {
      this.known.set(session.cookie, known);
    }
    const written = Promise.resolve(known.turn).then(() => write(known));
    known.turn = written.catch(() => undefined);
    return written.catch(explain);
  }

  private find(sid: string): Promise<Stored | undefined> {
    return this.sessions.get(sid).then((item) => (item ? storedOf(item) : undefined));
  }

  private async read(sid: string): Promise<SessionData | null> {
    const stored = await this.find(sid);
    if (!stored) {
      return null;
    }
    const data = structuredClone(stored.data); // the request changes it
    if (data.cookie.expires && stored.deadline) {
      data.cookie.expires = stored.deadline; // renewals do not write it
    }
    this.known.set(data.cookie, { sid, stored });
    return data;
  }

  private async save(known: Known, data: SessionData, first: "create" | "upsert" = "create"): Promise<void> {
    const { sid, stored } = known;
    const idle = idleOf(data);
    if (idle !== undefined && idle <= 0) {
      await this.sessions.delete(sid).catch(unlessEnded);
    } else if (!stored) {
      const ttl = idle && Math.min(idle, this.absolute ?? longest);
      known.stored = await this.limit(sid, storedOf(await this.sessions[first](sid, documentOf(data), { ttl })));
    } else if (same(data, stored.data) && (stored.ttl === idle || isLast(stored))) {
      const { modified, deadline, held } = await this.sessions.touch(sid, { minAge: this.minAge(stored) });
      // The etag stays, since another request may have changed the content.
      known.stored = await this.limit(sid, { ...stored, modified, deadline, held });
    } else {
      known.stored = await this.limit(sid, await this.replace(sid, stored, data));
    }
  }

  private async renew(known: Known, cookie?: session.Cookie): Promise<void> {
    const { sid, stored } = known;
    if (stored && (!cookie || same(stored.data, { ...stored.data, cookie }))) {
      return this.save(known, stored.data);
    }
    const found = await this.find(sid); // with what other requests have changed
    await (found && this.save({ sid, stored: found }, { ...found.data, ...(cookie && { cookie }) }));
  }

  /** Replaces the version that was loaded. Renewals by other requests are no changes. */
  private async replace(sid: string, stored: Stored, data: SessionData): Promise<Stored> {
    const lifetime = isLast(stored) && idleOf(data) === idleOf(stored.data) ? { keepDeadline: true } : { ttl: idleOf(data) };
    try {
      return storedOf(await this.sessions.replace(sid, documentOf(data, stored.end), { ...lifetime, ifMatch: stored.etag }));
    } catch (err) {
      const now = isNamed(err, "precondition_failed") ? await this.find(sid) : undefined;
      if (!now || !same(now.data, stored.data)) {
        throw err;
      }
      return this.replace(sid, now, data);
    }
  }

  /** Returns how old a session has to be for a renewal. */
  private minAge(stored: Stored): number | undefined {
    const idle = stored.deadline && !isLast(stored) ? (stored.deadline.getTime() - stored.modified.getTime()) / 1000 : undefined;
    return idle === undefined ? longest : Math.min(this.touchAfter ?? Math.ceil(idle / 10), Math.floor(idle / 2)) || undefined;
  }

  /** Makes a session that was written expire at its absolute end. That is by the clock of the log, which only replies show. */
  private async limit(sid: string, stored: Stored): Promise<Stored> {
    const end = stored.end ?? stored.modified.getTime() / 1000 + (this.absolute ?? Infinity);
    const beyond = !stored.held && (stored.deadline?.getTime() ?? Infinity) > end * 1000;
    if (end === Infinity || (end === stored.end && !beyond)) {
      return stored;
    }
    try {
      const { modified, deadline } = await this.sessions.patch(sid, { _session: { end } }, beyond ? { expireAt: new Date(end * 1000) } : {});
      return { ...stored, end, modified, deadline };
    } catch (err) {
      if (isNamed(err, "bad_ttl")) {
        await this.sessions.delete(sid); // the end has come meanwhile
        throw new LapseError(404, "document_not_found", "the session has ended");
      }
      throw err;
    }
  }
}

function answer(result: Promise<any>, done: ((err?: any, result?: any) => void) | undefined): void {
  result.then((value) => done?.(null, value), (err) => done?.(err));
}

/** Returns the data of a session as JSON has it. */
const plain = (session: SessionData): SessionData => JSON.parse(JSON.stringify(session));
