import { delay } from "@nats-io/nats-core";
import { Durable } from "./durable.js";
import { LapseError } from "./errors.js";
import type { Delivery } from "./event.js";
import { openFeed, read } from "./feed.js";
import { Refusal, type Log } from "./log.js";
import { handling, observed } from "./tracer.js";
import type { Event, FeedOptions } from "./types.js";

/** Handles an event. It fails by throwing; the signal is aborted when the feed ends. */
export type Handler<T> = (event: Event<T>, signal: AbortSignal) => Promise<void>;

export interface HandleOptions<T> extends FeedOptions {
  durable: string;
  /** How many documents are handled at the same time, 1 by default. The events of each are handled in order. */
  workers?: number;
  /** Passes an event to another handler after some tries, with the last error. Without it, an event is tried for ever. */
  poison?: { after: number; handler: (event: Event<T>, error: unknown) => Promise<void> };
}

/** Delays between the tries of a handler, each twice the one before, in milliseconds. */
const [firstRetry, lastRetry] = [100, 10_000];

/** The key of the consumer's metadata with the tries of its first event. */
const metadata = "lapse.tries";

/**
 * How often the handler of an event has failed. A delivery is no try, since an event may be
 * delivered to readers that end before they handle it. A reader that finds a running try
 * knows that its process crashed.
 */
export interface Tries {
  seq: number;
  /** Without the running one. */
  failed: number;
  running?: boolean;
}

/**
 * Returns how many tries of an event failed, at most limit, and whether the last one ended
 * with its process. Without an entry it had one try at most, in its first delivery; only a
 * crash that is certain puts an event aside without another try.
 */
export function triesOf(t: Partial<Tries>, d: Pick<Delivery, "seq" | "times">, limit: number): { failed: number; crashed: boolean } {
  if (d.times <= 1) {
    return { failed: 0, crashed: false };
  }
  if (t.seq === d.seq && t.running) {
    return { failed: (t.failed ?? 0) + 1, crashed: true };
  }
  return { failed: Math.min(t.seq === d.seq ? (t.failed ?? 0) : 1, limit - 1), crashed: false };
}

/** Counts the tries of a durable's events up to a limit, in the metadata of its consumer. */
class Counter {
  /** The first event that was handed out: those after it were only delivered with it. */
  first: number | undefined;
  readonly failed = new Map<number, number>();

  constructor(
    readonly durable: Durable,
    readonly limit: number,
  ) {}

  #records(d: Delivery): boolean {
    return d.seq === this.first && d.times > 1;
  }

  /** Returns the tries of an event that failed before this process, and the error of the last one if it is certain. */
  async begin(d: Delivery): Promise<{ failed: number; error?: Error }> {
    const { log, info, every } = this.durable;
    const found = this.#records(d) && (await log.consumer(info.name, every).catch(() => undefined));
    if (!found) {
      return { failed: 0 };
    }
    const { failed, crashed } = triesOf(parsedTries(found.config.metadata?.[metadata]), d, this.limit);
    this.failed.set(d.seq, failed);
    return { failed, ...(crashed && { error: new Error(`event ${d.seq}: the process ended while its handler ran, in try ${failed} of ${this.limit}`) }) };
  }

  /** Notes that a try begins. Returns an error if that can't be written and the event was delivered more often than it may be tried. */
  async try(d: Delivery, failed: number): Promise<Error | undefined> {
    const refused = this.#records(d) && (await this.#write({ seq: d.seq, failed, running: true }).catch((e) => e));
    if (refused && notEdited(refused) && d.times > this.limit) {
      return new Error(`event ${d.seq} was delivered ${d.times} times, and its tries cannot be counted: this user may not edit the consumer`, { cause: refused });
    }
    return undefined;
  }

  /** Writes the tries of the event with which the next reader begins, without one that was interrupted. */
  async end(): Promise<void> {
    if (this.durable.window.unacked.size > 0) {
      const seq = Math.min(...this.durable.window.unacked.keys());
      await this.#write({ seq, failed: this.failed.get(seq) ?? 0 }).catch(() => undefined); // or it is tried once more
    }
  }

  async #write(t: Tries): Promise<void> {
    const { log, info, every } = this.durable;
    const found = await log.consumer(info.name, every);
    if (found) {
      const config = { ...found.config, name: info.name, metadata: { ...found.config.metadata, [metadata]: JSON.stringify(t) } };
      await log.createConsumer(config, "update");
    }
  }
}

/** Returns the tries in the metadata of a consumer, {} for none. */
export function parsedTries(text = "{}"): Partial<Tries> {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

function notEdited(e: unknown): boolean {
  return (e instanceof Refusal && e.code === 400) || ((e as Error).cause as Error | undefined)?.name === "PermissionViolationError";
}

/** Calls a handler for each event of a feed, and acknowledges the event when it has returned. See Lapse.handle. */
export async function handle<T>(log: Log, handler: Handler<T>, options: HandleOptions<T>): Promise<void> {
  const { workers = 1, poison, signal } = options;
  for (const [n, most, what] of [[workers, 1000, "workers"], [poison?.after ?? 1, Infinity, "tries"]] as const) {
    if (n < 1 || n > most || n % 1 !== 0) {
      throw new LapseError(400, "bad_request", `${n} ${what}: use 1 ${most < Infinity ? `to ${most}` : "or more"}`);
    }
  }
  const failed = new AbortController();
  const ended = signal ? AbortSignal.any([signal, failed.signal]) : failed.signal;
  const feed = await openFeed(log, { ...options, signal: ended });
  if (!feed) {
    return;
  }
  const counter = poison && feed.reader instanceof Durable ? new Counter(feed.reader, poison.after) : undefined;
  const slots = new Slots(workers);
  const lanes = new Map<string, Promise<void>>(); // by document, until its last event is handled
  try {
    for await (const [event, d] of read<T>(log, options, feed)) {
      if (counter) {
        counter.first ??= d.seq;
      }
      const key = `${event.collection}/${event.id}`;
      const before = event.id === undefined ? Promise.all(lanes.values()) : lanes.get(key);
      const lane = Promise.resolve(before)
        .then(() => slots.run(() => handleEvent(log, event, d, handler, options, ended, counter)))
        .then(() => feed.reader.done(d))
        .catch((e) => failed.abort(e))
        .finally(() => lanes.get(key) === lane && lanes.delete(key));
      lanes.set(key, lane);
      await (event.id === undefined && lane);
    }
  } catch (e) {
    failed.abort(e);
  }
  await Promise.all(lanes.values());
  await counter?.end();
  await feed.reader.close();
  failed.signal.throwIfAborted();
}

/** Calls the handler until it returns, or the poison handler after its last try. Throws what ends the feed. */
async function handleEvent<T>(log: Log, event: Event<T>, d: Delivery, handler: Handler<T>, { poison }: HandleOptions<T>, ended: AbortSignal, counter?: Counter): Promise<void> {
  let { failed = 0, error }: { failed?: number; error?: unknown } = (await counter?.begin(d)) ?? {};
  for (let retry = firstRetry; !poison || failed < poison.after; retry = Math.min(2 * retry, lastRetry)) {
    ended.throwIfAborted();
    error = await counter?.try(d, failed);
    if (error) {
      break;
    }
    try {
      await observed(log.requests.tracer, await handling(log, event), () => handler(event, ended));
      counter?.failed.delete(d.seq);
      return;
    } catch (e) {
      error = e;
    }
    ended.throwIfAborted(); // an error caused by the end is no failure of the event
    failed++;
    counter?.failed.set(d.seq, failed);
    if (failed !== poison?.after) {
      await sleep(retry, ended);
    }
  }
  ended.throwIfAborted();
  await poison?.handler(event, error);
  counter?.failed.delete(d.seq);
}

async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  const timer = delay(ms);
  signal.addEventListener("abort", timer.cancel);
  await timer;
  signal.removeEventListener("abort", timer.cancel);
}

/** Runs a number of tasks at the same time. */
class Slots {
  readonly #waiting: (() => void)[] = [];

  constructor(private free: number) {}

  async run(task: () => Promise<void>): Promise<void> {
    if (this.free === 0) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else {
      this.free--;
    }
    await task().finally(() => {
      const next = this.#waiting.shift();
      next ? next() : this.free++;
    });
  }
}
