import type { ConsumerInfo, StreamState } from "@nats-io/jetstream";
import { ClosedConnectionError, type NatsConnection } from "@nats-io/nats-core";
import { LapseError } from "./errors.js";
import type { Requests } from "./request.js";

/** What JetStream refused. */
export class Refusal extends LapseError {
  constructor(
    /** JetStream's own code. */
    readonly kind: number,
    code: number,
    message: string,
  ) {
    super(code, code === 400 ? "bad_request" : "unavailable", message);
  }
}

/** The error in a reply of JetStream. */
interface Failure { code: number; err_code: number; description: string }

const noMessage = 10037;

/** The log of a database, by the API of JetStream. */
export class Log {
  readonly nc: NatsConnection;
  readonly stream: string;
  /** The prefix of the subjects of events, with the final dot. */
  readonly events: string;
  /** The prefix of the API's subjects, with the final dot. */
  readonly api: string;
  /** The prefix of the connection's inboxes. */
  readonly inboxes: string;

  /** @param apiPrefix undefined unless the API is that of another account */
  constructor(
    readonly requests: Requests,
    readonly apiPrefix: string | undefined,
  ) {
    this.nc = requests.nc;
    this.stream = "LAPSE_" + requests.database;
    this.events = `lapse.${requests.database}.events.`;
    this.api = (apiPrefix ?? "$JS.API") + ".";
    // The interface of a connection lacks its options.
    this.inboxes = (this.nc as { options?: { inboxPrefix?: string } }).options?.inboxPrefix ?? "_INBOX";
  }

  /** Sends a request about the log, or about its consumer name, to JetStream. Throws a LapseError, or Refusal. */
  async request<T>(verb: string, name = "", body?: object, timeout = this.requests.timeout): Promise<T> {
    const subject = `${this.api}${verb}.${this.stream}${name && "."}${name}`;
    const reply = await this.requests.exchange({ kind: "read", body: body && JSON.stringify(body), timeout }, subject, (msg) => {
      const reply: T & { error?: Failure } = JSON.parse(msg.string());
      if (reply.error?.code === 503) {
        throw this.#refusal(reply.error); // JetStream is away, so it may be asked again; it would repeat other refusals
      }
      return reply;
    });
    if (reply.error) {
      throw this.#refusal(reply.error);
    }
    return reply;
  }

  #refusal({ code, err_code: kind, description: text }: Failure): Refusal {
    const { database } = this.requests;
    const known: Record<number, string> = {
      10059: `database "${database}" has no log at ${this.api}>: start lapse serve --database ${database}, connect to the NATS server and account that has it, or set apiPrefix to the prefix at which this account imports it`,
      10014: "the consumer of the feed was deleted: continue from the last sequence",
      10026: `stream ${this.stream} has reached its limit of consumers: remove unused ones (nats consumer ls ${this.stream}, nats consumer rm), and try again`,
    };
    return new Refusal(kind, code === 400 && !known[kind] ? 400 : 503, known[kind] ?? `JetStream refused to read the feed: ${text}`);
  }

  /** Returns the state of a consumer, undefined if there is none. */
  async consumer(name: string, timeout?: number): Promise<ConsumerInfo | undefined> {
    return missing(10014, this.request<ConsumerInfo>("CONSUMER.INFO", name, undefined, timeout));
  }

  /** Throws a LapseError if the connection is closed. */
  checkOpen(): void {
    if (this.requests.link.closed || this.nc.isClosed()) {
      throw this.requests.faultOf(new ClosedConnectionError());
    }
  }

  /** Requests messages from a consumer. */
  pull(name: string, request: object, reply: string): void {
    this.publish(`${this.api}CONSUMER.MSG.NEXT.${this.stream}.${name}`, JSON.stringify(request), reply);
  }

  /** Publishes. Throws a LapseError if the connection is closed. */
  publish(subject: string, body = "", reply = ""): void {
    this.checkOpen();
    this.nc.publish(subject, body, { reply });
  }

  createConsumer(config: { name: string }, action: "create" | "update" = "create"): Promise<ConsumerInfo> {
    return this.request("CONSUMER.CREATE", config.name, { stream_name: this.stream, config, action });
  }

  /** Returns the bounds of the log, by the leader of the stream: without one, any replica answers. */
  async state(): Promise<StreamState> {
    const { state, cluster } = await this.request<{ state: StreamState; cluster?: { leader?: string } }>("STREAM.INFO");
    if (cluster && !cluster.leader) {
      throw new LapseError(503, "unavailable", `the log of database "${this.requests.database}" has no leader now: try again`);
    }
    return state;
  }

  /** Returns the sequence of a message, its log time in milliseconds, NaN if it is no event, and its trace context; undefined if there is none. */
  async get(which: { last_by_subj: string } | { seq: number; next_by_subj: string }, timeout?: number): Promise<{ seq: number; time: number; traceparent: string | undefined } | undefined> {
    const found = await missing(noMessage, this.request<{ message: { seq: number; hdrs?: string } }>("STREAM.MSG.GET", "", which, timeout));
    const headers = atob(found?.message.hdrs ?? "");
    return found && { seq: found.message.seq, time: Number(/^Lapse-Time: *(-?\d+)/m.exec(headers)?.[1]), traceparent: /^traceparent: *(\S+)/m.exec(headers)?.[1] };
  }

  /**
   * Returns the sequence of the first event whose log time is at or later, or the one after
   * the last. It bisects: JetStream would search by the machine's clock, from which log time
   * may differ by years.
   */
  async firstSince({ first_seq, last_seq }: StreamState, at: number): Promise<number> {
    let [low, high] = [Math.max(first_seq, 1), last_seq + 1];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      let found = await this.get({ seq: middle, next_by_subj: ">" });
      while (found && found.seq < high && Number.isNaN(found.time)) {
        found = await this.get({ seq: found.seq + 1, next_by_subj: ">" });
      }
      if (!found || found.seq >= high || found.time >= at) {
        high = middle;
      } else {
        low = found.seq + 1;
      }
    }
    return low;
  }
}

/** Returns a reply, undefined if JetStream refused it by this code. */
async function missing<T>(kind: number, reply: Promise<T>): Promise<T | undefined> {
  try {
    return await reply;
  } catch (e) {
    if (e instanceof Refusal && e.kind === kind) {
      return undefined;
    }
    throw e;
  }
}
