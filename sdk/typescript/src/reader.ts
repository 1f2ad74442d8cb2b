import { createInbox, type Msg, type Subscription } from "@nats-io/nats-core";
import type { Delivery } from "./event.js";
import type { Log } from "./log.js";

/** How long to wait before asking again for what nobody announces, in milliseconds. */
export const poll = 50;

/** Reads from a consumer: an inbox, and those who wait for a message or the connection. */
export abstract class Reader {
  protected stopped = false;
  /** Why no more messages come. */
  protected failure: Error | undefined;
  readonly #inbox: string;
  #subscription: Subscription | undefined;
  readonly #waiting = new Set<() => void>();

  /** @param signal ends the reader */
  constructor(
    readonly log: Log,
    protected readonly signal: AbortSignal | undefined,
  ) {
    this.#inbox = createInbox(log.inboxes);
    log.requests.link.waiting.add(this.changed);
    signal?.addEventListener("abort", this.changed);
  }

  /** Waits for a message; undefined at the end with which the reader was opened. Throws the signal's reason. */
  abstract next(): Promise<Delivery | undefined>;

  /** Acknowledges a message. */
  abstract done(d: Delivery): void;

  /** Returns what is not acknowledged to the server. */
  abstract close(): Promise<void>;

  /** Handles a message, or a status of JetStream. */
  protected abstract receive(msg: Msg): void;

  /** Returns a subject of the inbox. */
  protected inbox(token: string | number): string {
    return `${this.#inbox}.${token}`;
  }

  /** Receives messages at a subject, and at none of before. */
  protected subscribe(subject: string): void {
    this.log.checkOpen();
    this.#subscription?.unsubscribe();
    this.#subscription = this.log.nc.subscribe(subject, {
      callback: (failed, msg) => {
        if (failed) {
          this.failure = this.log.requests.faultOf(failed);
        } else {
          this.receive(msg);
        }
        this.changed();
      },
    });
  }

  protected get connected(): boolean {
    return this.log.requests.link.connected && !this.log.requests.link.closed;
  }

  /** Wakes all who wait. */
  protected readonly changed = (): void => {
    this.#waiting.forEach((wake) => wake());
  };

  /** Waits for a change, at most some milliseconds. */
  protected wait(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      const timer = ms === undefined ? undefined : setTimeout(wake, ms);
      this.#waiting.add(wake);
    });
  }

  /** Ends the subscription. */
  protected stop(): void {
    this.stopped = true;
    this.#subscription?.unsubscribe();
    this.log.requests.link.waiting.delete(this.changed);
    this.signal?.removeEventListener("abort", this.changed);
    this.changed();
  }
}
