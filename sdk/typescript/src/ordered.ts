import type { ConsumerInfo } from "@nats-io/jetstream";
import { delay, nuid, type Msg } from "@nats-io/nats-core";
import { LapseError } from "./errors.js";
import { deliveryOf, type Delivery } from "./event.js";
import { Refusal, type Log } from "./log.js";
import { poll, Reader } from "./reader.js";
import { maxBytes, maxEvents } from "./window.js";

/** The interval in which the server reports that a consumer lives, in milliseconds. */
const heartbeat = 2000;

/** How long a reader with an end waits for its next message, in milliseconds. */
const standstill = 30_000;

/** Messages and bytes of one pull, and of what is handed out and not done. */
const [batch, bytes] = [maxEvents / 4, maxBytes / 4];

/**
 * The source of a feed without a stored position. After a gap it makes its consumer again,
 * after the last message. In an account that imports the log NATS pushes, since pulls would
 * need an import for each name.
 */
export class Ordered extends Reader {
  #name = "";
  #consumers = 0;
  #arrived: Msg[] = [];
  #delivered = 0; // by the present consumer
  #requested = 0; // messages that may still arrive
  #stalls = 0; // heartbeats since the last message at which the consumer waited for flow control
  #held = { events: 0, bytes: 0 }; // handed out and not done

  /** @param end the last sequence, if the log has it */
  constructor(
    log: Log,
    signal: AbortSignal | undefined,
    readonly filters: string[],
    private begin: number,
    readonly end: number | undefined,
  ) {
    super(log, signal);
  }

  /** Creates a consumer that begins after the last message. */
  async open(): Promise<void> {
    this.#name = "lapse_reader_" + nuid.next();
    this.subscribe(this.inbox(++this.#consumers)); // NATS pushes to exactly this subject
    [this.#arrived, this.#delivered, this.#requested, this.#stalls] = [[], 0, 0, 0];
    const push = { deliver_subject: this.inbox(this.#consumers), flow_control: true, idle_heartbeat: heartbeat * 1e6 };
    let info: (ConsumerInfo & { push_bound?: boolean }) | undefined = await this.log.createConsumer({
      ...{ name: this.#name, filter_subjects: this.filters, deliver_policy: "by_start_sequence", opt_start_seq: this.begin },
      ...{ ack_policy: "none", replay_policy: "instant", mem_storage: true, num_replicas: 1, inactive_threshold: 30e9 },
      ...(this.log.apiPrefix && push),
    });
    for (const until = performance.now() + this.log.requests.timeout; this.log.apiPrefix && !info?.push_bound; info = await this.log.consumer(this.#name)) {
      if (performance.now() > until) {
        throw new LapseError(503, "unavailable", `the log is not delivered to the inboxes of this connection (${this.log.inboxes}.>): import that subject as a stream from the account of the log, or connect with the inboxPrefix that is imported`);
      }
      await delay(poll);
    }
  }

  protected override receive(msg: Msg): void {
    this.#arrived.push(msg);
  }

  override async next(): Promise<Delivery | undefined> {
    for (let since = performance.now(); ; ) {
      this.signal?.throwIfAborted();
      if (this.#held.events >= 2 * batch || this.#held.bytes >= 2 * bytes) {
        await this.wait();
        since = performance.now();
        continue;
      }
      const step = this.connected ? await this.#step() : "lost";
      if (typeof step === "object") {
        return step;
      }
      this.log.checkOpen();
      if (this.failure) {
        throw this.failure;
      }
      if (this.end !== undefined && performance.now() - since > standstill) {
        throw new LapseError(503, "unavailable", `incomplete: the log was read up to sequence ${this.begin - 1} of ${this.end}, and nothing came for ${standstill / 1000} s, since the replica that is read lags or is cut off: try again, or see nats stream info ${this.log.stream}`);
      }
      if (step === "lost") {
        await this.#reset();
      }
    }
  }

  /** Handles what arrived first, or waits for it: returns a message, or that messages may be missing. */
  async #step(): Promise<Delivery | "lost" | undefined> {
    for (; !this.log.apiPrefix && this.#requested <= batch; this.#requested += batch) {
      this.log.pull(this.#name, { batch, max_bytes: bytes, expires: 30e9, idle_heartbeat: heartbeat * 1e6 }, this.inbox(this.#consumers));
    }
    const msg = this.#arrived.shift();
    if (!msg) {
      const until = performance.now() + heartbeat * 2.5;
      await this.wait(heartbeat * 2.5);
      return performance.now() >= until ? "lost" : undefined;
    }
    const d = deliveryOf(msg);
    if (!d) {
      return this.#control(msg);
    }
    if (d.number !== ++this.#delivered) {
      return "lost";
    }
    this.#requested--;
    [this.#stalls, this.begin] = [0, d.seq + 1];
    this.#hold(1, d.size);
    return d;
  }

  /** Handles a message of JetStream itself; returns whether messages may be missing. */
  #control({ headers, reply }: Msg): "lost" | undefined {
    const [code, stalled, unsent] = [headers?.code ?? 0, headers?.get("Nats-Consumer-Stalled"), headers?.get("Nats-Pending-Messages")];
    if (Number(headers?.get("Nats-Last-Consumer") || 0) > this.#delivered) {
      return "lost";
    }
    if (code === 100 && stalled && ++this.#stalls > 4) {
      this.failure = new LapseError(503, "unavailable", `the log stops, since flow control is not answered: import $JS.FC.${this.log.stream}.> from the account of lapse's clients, with a permission to publish there`);
    } else if (code === 100 && (stalled || reply)) {
      this.log.publish(stalled || reply!); // flow control
    } else if ((code === 408 || code === 409) && unsent) {
      this.#requested -= Number(unsent); // expired, or the next message exceeds the bytes that remain
    }
    return code === 100 || unsent ? undefined : "lost";
  }

  /** Makes the consumer again: NATS and lapse restart. */
  async #reset(): Promise<void> {
    void this.#delete();
    try {
      await this.open();
    } catch (e) {
      if (e instanceof Refusal && e.code === 400) {
        throw e;
      }
      await delay(heartbeat / 4);
    }
  }

  async #delete(): Promise<void> {
    const auditor = this.log.inboxes === "_INBOX.auditor" ? ".auditor" : "";
    await this.log.request("CONSUMER.DELETE", this.#name + auditor, undefined, heartbeat).catch(() => undefined); // it expires
  }

  #hold(events: number, size: number): void {
    this.#held = { events: this.#held.events + events, bytes: this.#held.bytes + size };
  }

  override done({ size }: Delivery): void {
    this.#hold(-1, -size);
    this.changed();
  }

  override async close(): Promise<void> {
    this.stop();
    await this.#delete();
  }
}
