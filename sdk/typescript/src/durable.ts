import type { ConsumerConfig, ConsumerInfo } from "@nats-io/jetstream";
import { deadline, delay, type Msg } from "@nats-io/nats-core";
import { LapseError } from "./errors.js";
import { deliveryOf, type Delivery } from "./event.js";
import type { Log } from "./log.js";
import { poll, Reader } from "./reader.js";
import { follows, nextGroup, Window } from "./window.js";

/** The priority group of all readers of a durable. The server pins one of them. */
const readers = "readers";

export interface DurableOptions {
  name: string;
  filters: string[];
  /** In milliseconds; undefined for 5 s, or what the first use of the name set. */
  ackWait: number | undefined;
}

/** Returns the consumer that the first use of a durable's name makes, to begin at a sequence. */
export function consumerConfig({ name, filters, ackWait = 5000 }: DurableOptions, begin: number): ConsumerConfig & { name: string } {
  return {
    ...{ name, durable_name: name, filter_subjects: filters, deliver_policy: "by_start_sequence", opt_start_seq: begin, replay_policy: "instant" },
    ...{ ack_policy: "explicit", ack_wait: ackWait * 1e6, max_ack_pending: 1000 },
    ...{ priority_policy: "pinned_client", priority_groups: [readers], priority_timeout: ackWait * 1e6 },
  };
}

/** Returns the consumer of a durable. One that exists stays as it is, since another loop may read from it. */
export async function openConsumer(log: Log, o: DurableOptions, begin: () => Promise<number>): Promise<ConsumerInfo> {
  const info = (await log.consumer(o.name)) ?? (await create(log, consumerConfig(o, await begin())));
  const c = info.config;
  const pinned = c.priority_policy === "pinned_client" && c.priority_groups?.join() === readers;
  const earlier = c.max_ack_pending === 1 && (c.priority_policy ?? "none") === "none"; // of an earlier release
  const refuse = (text: string) => new LapseError(400, "bad_request", text);
  if (c.deliver_subject || c.ack_policy !== "explicit" || !(pinned || earlier)) {
    throw refuse(`the consumer "${o.name}" belongs to another program: choose another durable name`);
  }
  const remove = `delete the consumer if no loop reads it any more (nats consumer rm ${log.stream} ${o.name})`;
  const [had, wanted] = [filtersOf(log, c).join(" "), filtersOf(log, { filter_subjects: o.filters }).join(" ")];
  if (had !== wanted) {
    throw refuse(`the durable "${o.name}" reads ${had}, and this reader selects ${wanted}: choose another durable name, or ${remove}`);
  }
  if (o.ackWait !== undefined && o.ackWait * 1e6 !== c.ack_wait) {
    throw refuse(`the durable "${o.name}" has the ack wait ${c.ack_wait! / 1e9} s, and this reader asks for ${o.ackWait / 1000} s: leave ackWait out, or ${remove}`);
  }
  return info;
}

async function create(log: Log, config: { name: string }): Promise<ConsumerInfo> {
  try {
    return await log.createConsumer(config);
  } catch (e) {
    const other = await log.consumer(config.name).catch(() => undefined); // of a concurrent first use
    if (!other) {
      throw e;
    }
    return other;
  }
}

/** Returns the filters of a consumer in one form: an event's subject has two tokens after its prefix. */
function filtersOf({ events }: Log, { filter_subjects, filter_subject }: Partial<ConsumerConfig>): string[] {
  const all = filter_subjects ?? [filter_subject || events + ">"];
  return [...new Set(all.map((f) => (f === events + "*.*" ? events + ">" : f === events + ">" ? f : f.replace(/>$/, "*"))))].sort();
}

/** A request for messages. */
interface Pull {
  reply: string;
  /** Messages that may still arrive. */
  open: number;
  received: number;
  bytes: number;
  redelivered: boolean;
  /** The status that ended it early. */
  status?: { code: number; text: string };
}

/**
 * The source of a feed whose position the server stores.
 *
 * It pulls messages in groups, ahead of the loop; the window keeps the order of the log.
 */
export class Durable extends Reader {
  readonly window: Window;
  /** The interval of progress reports, in milliseconds. */
  readonly every: number;
  readonly #timer: NodeJS.Timeout;
  readonly #pulling: Promise<void>;
  #confirmed = performance.now(); // when the server last knew that this reader has its messages
  #pull: Pull = { reply: "", open: 0, received: 0, bytes: 0, redelivered: false };
  #pulls = 0;
  #pin = "";
  #ended = false;

  /** @param end the sequence up to which all is acknowledged when the reader ends */
  constructor(
    log: Log,
    signal: AbortSignal | undefined,
    readonly info: ConsumerInfo,
    readonly end: number | undefined,
  ) {
    super(log, signal);
    this.subscribe(this.inbox("*"));
    this.window = new Window(info.config.priority_policy === "pinned_client");
    this.every = info.config.ack_wait! / 3e6;
    this.#timer = setInterval(() => void this.#report(), this.every);
    this.#pulling = this.#run().catch((e) => {
      this.failure = e;
      this.changed();
    });
  }

  protected override receive(msg: Msg): void {
    const pull = this.#pull;
    const d = deliveryOf(msg);
    if (d) {
      this.window.add(d);
      this.#pin = d.pin;
      pull.open--;
      pull.received++;
      pull.bytes += d.size;
      pull.redelivered ||= d.times > 1;
    } else if (msg.subject === pull.reply) {
      const { code = 0, description: text = "" } = msg.headers ?? {};
      const unsent = msg.headers?.get("Nats-Pending-Messages");
      if (unsent && code !== 423) {
        pull.open -= Number(unsent); // what was sent may arrive after the status
      } else {
        pull.status = { code, text };
      }
    }
  }

  /** Pulls groups of messages until the reader stops or the consumer fails. */
  async #run(): Promise<void> {
    for (let size = 1, unanswered = 0; !this.stopped && !this.failure; ) {
      this.log.checkOpen();
      if (!this.connected || !this.window.mayPull(size)) {
        await this.wait();
        continue;
      }
      const request = this.window.pull(size);
      const pull = await this.#request(request);
      const { status, received } = pull;
      unanswered = status?.code === 503 ? unanswered + poll : -Infinity;
      if (status) {
        await this.#check(status, unanswered > this.log.requests.timeout);
        await delay(poll); // the server is unreachable, or another reader is pinned
      }
      size = this.window.pinned ? nextGroup(size, { ...pull, full: received >= request.batch }) : 1;
      if (received === 0 && this.end !== undefined) {
        this.#ended = ((await this.#state())?.ack_floor.stream_seq ?? 0) >= this.end;
        this.changed();
      }
    }
  }

  /** Pulls a group, until it is complete or expires, early enough to keep the reader pinned. */
  async #request(request: { batch: number; max_bytes?: number }): Promise<Pull> {
    const pull: Pull = { reply: this.inbox(++this.#pulls), open: request.batch, received: 0, bytes: 0, redelivered: false };
    this.#pull = pull;
    const group = this.window.pinned ? { group: readers, ...(this.#pin && { id: this.#pin }) } : {};
    this.log.pull(this.info.name, { ...request, expires: Math.round(this.every * 1.35) * 1e6, ...group }, pull.reply);
    const until = performance.now() + 2 * this.every;
    while (pull.open > 0 && !pull.status && performance.now() < until && this.connected && !this.stopped && !this.failure) {
      await this.wait(until - performance.now());
    }
    if (pull.status?.code === 423) {
      this.#pin = "";
    }
    return pull;
  }

  /** Throws what a status says if it is for good. */
  async #check({ code, text }: { code: number; text: string }, unanswered: boolean): Promise<void> {
    const { name, stream_name: stream } = this.info;
    const why = text.split("not permitted: ")[1];
    if (code === 400) {
      throw new LapseError(400, "bad_request", `JetStream refused to read the feed: ${text}`);
    }
    if (why) {
      throw new LapseError(503, "unavailable", `pulls from the consumer "${name}" are refused: ${why}`);
    }
    if (unanswered && this.log.apiPrefix) {
      throw new LapseError(503, "unavailable", `nobody answers pulls from the consumer "${name}": import $JS.API.CONSUMER.MSG.NEXT.${stream}.${name}, as ${this.log.api}CONSUMER.MSG.NEXT.${stream}.${name}, from the account of the log (a service with response_type stream)`);
    }
    if (code !== 423) {
      await this.#state();
    }
  }

  /** Returns the state of the consumer, undefined if it does not answer. */
  async #state(): Promise<ConsumerInfo | undefined> {
    try {
      const info = await this.log.consumer(this.info.name, this.every);
      if (!info) {
        this.failure ??= new LapseError(503, "unavailable", `the consumer "${this.info.name}" was deleted: continue from the last sequence`);
        this.changed();
      }
      return info;
    } catch {
      return undefined;
    }
  }

  override async next(): Promise<Delivery | undefined> {
    for (;;) {
      this.signal?.throwIfAborted();
      if (performance.now() - this.#confirmed > 2 * this.every) {
        this.window.drop(); // the server may have given the messages to another reader
        this.#confirmed = performance.now();
        this.changed();
      }
      const m = this.window.take() ?? (await this.#first());
      if (m) {
        return m;
      }
      if (this.failure) {
        throw this.failure;
      }
      const waits = this.window.ready.length > 0;
      if (!waits && this.#ended) {
        return undefined;
      }
      await this.wait(waits ? poll : undefined);
    }
  }

  /** Returns the first message of an unsettled window if it may be handed out. */
  async #first(): Promise<Delivery | undefined> {
    const q = this.window.inquire();
    const info = q && (await this.#state());
    if (!info) {
      return undefined;
    }
    const isFirst = follows(q, info.ack_floor) || (await this.#isNext(info.ack_floor.stream_seq, q.first.seq));
    const m = this.window.settle(q, isFirst, info.num_ack_pending);
    this.changed();
    return m;
  }

  /** Reports whether seq is the first event after another that the consumer chooses. */
  async #isNext(after: number, seq: number): Promise<boolean> {
    try {
      const filters = filtersOf(this.log, this.info.config);
      const next = await Promise.all(filters.map((next_by_subj) => this.log.get({ seq: after + 1, next_by_subj }, this.every)));
      return next.every((m) => !m || m.seq >= seq);
    } catch (e) {
      if (((e as Error).cause as Error | undefined)?.name === "PermissionViolationError") {
        throw e;
      }
      return false; // it is asked again
    }
  }

  /** Reports all messages as in progress: only a vanished reader loses them. */
  async #report(): Promise<void> {
    const at = performance.now();
    this.window.unacked.forEach(({ msg }) => msg.respond("+WPI"));
    if (this.window.unacked.size === 0 || (await this.#flushed())) {
      this.#confirmed = at;
    }
  }

  /** Reports whether the server has in time all that was sent. */
  #flushed(): Promise<boolean> {
    return deadline(this.log.nc.flush(), this.every).then(() => true, () => false);
  }

  override done({ seq, msg }: Delivery): void {
    this.window.remove(seq);
    this.log.publish(msg.reply!, "+ACK");
    this.changed();
  }

  override async close(): Promise<void> {
    // What is in transit would be delivered again only after the ack wait.
    for (const until = performance.now() + this.every; performance.now() < until && !(await this.#arrived()); ) {
      await this.wait(poll / 10);
    }
    this.stop();
    clearInterval(this.#timer);
    await this.#pulling;
    if (this.window.pin) {
      // Or the next reader would wait until the pin expires.
      await this.log.request("CONSUMER.UNPIN", this.info.name, { group: readers }, this.every).catch(() => undefined);
    }
    [...this.window.unacked.values()].sort((a, b) => a.seq - b.seq).forEach(({ msg }) => msg.respond("-NAK"));
    await this.#flushed(); // before the process ends
  }

  /** Reports whether all that the server has sent has arrived, unless it may belong to other readers. */
  async #arrived(): Promise<boolean> {
    return !this.window.settled || ((await this.#state())?.num_ack_pending ?? 0) <= this.window.unacked.size;
  }
}
