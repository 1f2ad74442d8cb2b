import { headers as newHeaders, nuid, type Msg, type MsgHdrs, type NatsConnection } from "@nats-io/nats-core";
import { LapseError } from "./errors.js";
import { observed, type Tracer } from "./tracer.js";
import type * as wire from "./wire.generated.js";

/** A request to a database. */
export interface Call {
  /** The subject after `lapse.<db>.`, as `api.status`. */
  tail: string;
  /** How often it may be applied: writes are sent again under one id, others never. */
  kind: "read" | "write" | "once";
  body?: string | undefined;
  headers?: Record<string, string | undefined>;
  signal?: AbortSignal | undefined;
  /** Milliseconds; by default those of the Lapse. */
  timeout?: number;
}

/** The operation and collection of a request. */
const tracedTail = /^api\.((?:collection|document)\.\w+|\w+)(?:\.([^.]+))?/;

type Untailed = Omit<Call, "tail">;

export interface Reply {
  /** The body as text. */
  text: string;
  headers: MsgHdrs;
}

/** How long a write waits for its reply before it is sent again, in milliseconds. */
const resendAfter = 2500;
/** How long a request pauses that finds no process after its reply was lost or the connection was away, in milliseconds. */
const pause = 100;
/** The size of a body that every user of NATS may send. */
const alwaysFits = 1024;

/** Why the reply to a request that was sent will not come. */
class Lost extends Error {}

function ignoreLost(err: unknown): void {
  if (!(err instanceof Lost)) {
    throw err;
  }
}

/** What is known of a connection. */
class Link {
  connected: boolean;
  /** Whether the connection ends for good. */
  closed = false;
  /** Whether the max_payload of the user is known, which NATS tells after the login. */
  limits = false;
  /** Ends the calls that wait for a reply, or for the connection. */
  readonly waiting = new Set<(why: Lost) => void>();

  constructor(nc: NatsConnection) {
    this.connected = nc.info !== undefined || nc.isClosed();
    void this.watch(nc);
  }

  private async watch(nc: NatsConnection): Promise<void> {
    for await (const { type } of nc.status()) {
      if (type === "disconnect" || type === "reconnect" || type === "close") {
        this.connected = type !== "disconnect"; // a closed connection refuses requests itself
        this.closed = type === "close";
        this.limits = false;
        this.waiting.forEach((end) => end(new Lost()));
      }
    }
  }
}

const links = new WeakMap<NatsConnection, Link>();

function linkOf(nc: NatsConnection): Link {
  let link = links.get(nc);
  if (!link) {
    links.set(nc, (link = new Link(nc)));
  }
  return link;
}

/** Sends requests to one database. */
export class Requests {
  /** The highest sequence of a reply. */
  private seq = 0;
  readonly link: Link;

  /** timeout is in milliseconds. */
  constructor(
    readonly nc: NatsConnection,
    readonly database: string,
    readonly timeout: number,
    readonly readYourWrites: boolean,
    readonly parse: (text: string) => any,
    readonly tracer?: Tracer,
  ) {
    this.link = linkOf(nc);
  }

  /** Sends a request and returns its reply. Throws a LapseError if it is refused. */
  send(call: Call): Promise<Reply> {
    const { database, tracer } = this;
    const subject = `lapse.${database}.${call.tail}`;
    const [, operation, collection] = (tracer && tracedTail.exec(call.tail)) ?? [];
    if (!tracer || operation === undefined) {
      return this.exchange(call, subject, (msg) => this.replyOf(call, msg));
    }
    const traced = tracer.call({ database, operation, ...(collection && { collection }) });
    const headers = { ...call.headers, ...traced.headers };
    return observed(tracer, traced, () => this.exchange({ ...call, headers }, subject, (msg) => this.replyOf(call, msg)));
  }

  /** Sends a request to a subject and returns what read makes of the reply, which may throw a LapseError. */
  async exchange<R>(call: Untailed, subject: string, read: (msg: Msg) => R): Promise<R> {
    const until = Date.now() + (call.timeout ?? this.timeout);
    const headers = this.headersOf(call);
    let sent = false; // an earlier attempt may have been applied
    let waited = false; // the connection was away, and so the process that serves may be
    for (;;) {
      try {
        waited ||= !this.link.connected;
        if (!this.link.connected || (!this.link.limits && (call.body?.length ?? 0) > alwaysFits)) {
          await this.ready(call, until);
        }
        return read(await this.attempt(call, subject, headers, until));
      } catch (err) {
        const lost = err instanceof Lost;
        sent ||= lost;
        const again = call.kind !== "once" && (sent || waited) && !this.link.closed && !this.nc.isClosed() && (lost || (err instanceof LapseError && err.retryable));
        if (!again || Date.now() + pause >= until) {
          throw lost || (again && sent) ? this.unanswered(call, err) : err;
        }
        if (!lost) {
          await this.wait(call, pause).catch(ignoreLost);
        }
      }
    }
  }

  /** Sends a request and returns the body of its reply. */
  async ask(call: Call): Promise<any> {
    const { text } = await this.send(call);
    return text === "" ? undefined : this.parse(text);
  }

  /** Waits until the connection is there, and knows its limits. */
  private async ready(call: Untailed, until: number): Promise<void> {
    const { link, nc } = this;
    while (!link.connected) {
      const left = until - Date.now();
      if (left <= 0) {
        throw new LapseError(504, "timeout", "the connection to NATS did not come back in time: try again");
      }
      await this.wait(call, left).catch(ignoreLost);
    }
    // NATS ends the connection of a user who sends more than is allowed.
    try {
      await this.wait<void>(call, until - Date.now(), (resolve, reject) => void nc.flush().then(resolve, reject));
      link.limits = true;
    } catch {
      call.signal?.throwIfAborted(); // the request itself will fail for any other reason
    }
  }

  private attempt(call: Untailed, subject: string, headers: MsgHdrs | undefined, until: number): Promise<Msg> {
    const left = Math.max(1, until - Date.now());
    const timeout = call.kind === "write" ? Math.min(left, resendAfter) : left;
    return this.wait(call, undefined, (resolve, reject) => {
      // Each request makes two errors in advance, whose stacks would cost more than all else.
      const { stackTraceLimit } = Error;
      Error.stackTraceLimit = 0;
      try {
        this.nc.request(subject, call.body, headers ? { timeout, headers } : { timeout }).then(resolve, (err: Error) => reject(this.faultOf(err)));
      } finally {
        Error.stackTraceLimit = stackTraceLimit;
      }
    });
  }

  /** Settles as begin does, unless ms go by, the connection ends or comes back, or the call is aborted. */
  private wait<R>(call: Untailed, ms?: number, begin?: (resolve: (result: R) => void, reject: (why: unknown) => void) => void): Promise<R> {
    const { signal } = call;
    const { waiting } = this.link;
    return new Promise<R>((resolve, reject) => {
      signal?.throwIfAborted();
      const end = (why: unknown) => {
        clearTimeout(timer);
        waiting.delete(end);
        signal?.removeEventListener("abort", abort);
        reject(why);
      };
      const abort = () => end(signal!.reason);
      const timer = ms === undefined ? undefined : setTimeout(end, ms, new Lost());
      waiting.add(end);
      signal?.addEventListener("abort", abort);
      begin?.((result) => {
        resolve(result);
        end(undefined);
      }, end);
    });
  }

  private headersOf(call: Untailed): MsgHdrs | undefined {
    const all: Record<string, string | undefined> = { ...call.headers };
    if (this.readYourWrites && this.seq > Number(all["Lapse-Min-Seq"] ?? 0)) {
      all["Lapse-Min-Seq"] = String(this.seq);
    }
    if (call.kind === "write") {
      all["Nats-Msg-Id"] ??= nuid.next();
    }
    let out: MsgHdrs | undefined;
    for (const name in all) {
      const value = all[name];
      if (value !== undefined) {
        (out ??= newHeaders()).set(name, value);
      }
    }
    return out;
  }

  private replyOf(call: Call, msg: Msg): Reply {
    const { headers } = msg;
    const status = Number(headers?.get("Lapse-Status") || headers?.get("Nats-Service-Error-Code"));
    if (!headers || !status) {
      throw new LapseError(504, "timeout", "the first reply is not from lapse, since it has no Lapse-Status header: stop the other responder; a write may have been applied");
    }
    if (status >= 400) {
      const err = errorOf(status, refusal(msg.string()), headers.get("Nats-Service-Error"));
      throw status === 504 && call.kind === "once" ? this.unanswered(call, err) : err;
    }
    this.seq = Math.max(this.seq, Number(headers.get("Lapse-Seq")) || 0);
    return { text: msg.string(), headers };
  }

  /** Returns the error of an attempt without a reply: Lost if it may have been applied. */
  faultOf(err: Error): Error {
    const cause = err.cause instanceof Error ? err.cause : err;
    switch (cause.name) {
      case "NoResponders":
        return new LapseError(503, "unavailable", `no process serves database "${this.database}" here now: try again if a standby is taking over, or start lapse serve --database ${this.database}, or connect to the NATS server and account that has it`);
      case "PermissionViolationError":
        return new LapseError(503, "unavailable", `NATS does not permit the request (${cause.message}): connect as a user who may`, false, { cause });
      case "InvalidArgumentError":
        return new LapseError(413, "too_large", `the request exceeds max_payload of this connection (${this.nc.info?.max_payload} bytes): send less at once`, false, { cause });
      case "ClosedConnectionError":
      case "DrainingConnectionError":
        return new LapseError(503, "unavailable", "the connection to NATS is closed: connect again", true, { cause });
    }
    return new Lost(cause.message, { cause });
  }

  private unanswered(call: Untailed, cause: unknown): LapseError {
    const message = `no answer from database "${this.database}" in time, or it was lost with the connection`;
    if (call.kind === "once") {
      return new LapseError(504, "timeout", `${message}: read what it may have changed before you send it again, since it may have been applied`, false, { cause });
    }
    return new LapseError(504, "timeout", `${message}: try again${call.kind === "write" ? "; the write may have been applied" : ""}`, true, { cause });
  }
}

/** Returns the error of a reply, or of an operation in a batch. */
export function errorOf(status: number, body: Partial<wire.Error> = {}, fallback = ""): LapseError {
  return new LapseError(status, body.error || nameOf(status), body.message || fallback);
}

/** Returns the body of an error, undefined where the service framework has refused the request, without one. */
function refusal(text: string): wire.Error | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function nameOf(status: number): string {
  const names: Record<number, string> = { 400: "bad_request", 412: "precondition_failed", 413: "too_large", 424: "failed_dependency", 429: "overloaded", 504: "timeout" };
  return names[status] ?? (status >= 500 ? "unavailable" : `status_${status}`);
}
