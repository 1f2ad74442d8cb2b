import type { ConsumerInfo } from "@nats-io/jetstream";
import { milliseconds } from "./duration.js";
import { Durable, openConsumer } from "./durable.js";
import { LapseError } from "./errors.js";
import { decodeEvent, type Delivery } from "./event.js";
import type { Log } from "./log.js";
import { checkCollection } from "./names.js";
import { Ordered } from "./ordered.js";
import type { Reader } from "./reader.js";
import { handling } from "./tracer.js";
import type { Event, FeedOptions } from "./types.js";

const eventTypes = [
  ...["CollectionCreated", "CollectionReplaced", "CollectionDeleted", "DocumentCreated", "DocumentReplaced", "DocumentDeleted"],
  ...["DocumentExpired", "DocumentTouched", "DocumentExpiring", "DocumentHeld", "DocumentReleased", "MutationRejected"],
];

const badRequest = (text: string) => new LapseError(400, "bad_request", text);

/** Checks options. Throws a RangeError for a moment or length of time that can't be, else a LapseError. */
export function check({ durable, collection, types, from, until, ackWait }: FeedOptions): void {
  for (const bound of [from, until]) {
    if (typeof bound === "number" ? !Number.isSafeInteger(bound) || bound < 0 : bound instanceof Date && Number.isNaN(bound.getTime())) {
      throw new RangeError(`${String(bound)} is no sequence and no moment`);
    }
  }
  if (ackWait !== undefined && (milliseconds(ackWait) < 1000 || milliseconds(ackWait) > 3_600_000)) {
    throw new RangeError(`ack wait ${String(ackWait)}: use 1s to 1h`);
  }
  if (durable !== undefined && !/^[^\s.*>/\\]+$/.test(durable)) {
    throw badRequest("the durable name is not legal: use letters, digits, _ and -");
  }
  if (collection !== undefined && collection !== "_invalid") {
    checkCollection(collection);
  }
  const unknown = types?.find((t) => !eventTypes.includes(t));
  if (unknown !== undefined) {
    throw badRequest(`unknown event type ${JSON.stringify(unknown)}: use ${eventTypes.join(", ")}`);
  }
}

/** Returns the subjects of the chosen events. */
function filters({ events }: Log, { collection, types }: FeedOptions): string[] {
  if (collection === undefined && !types?.length) {
    return [events + ">"];
  }
  return [...new Set(types?.length ? types : ["*"])].sort().map((t) => `${events}${collection ?? "*"}.${t}`);
}

/** Returns the first sequence of a feed without a stored position. */
async function begin(log: Log, { from }: FeedOptions): Promise<number> {
  if (from === "start") {
    return 1;
  }
  const state = await log.state();
  if (from instanceof Date) {
    return log.firstSince(state, from.getTime());
  }
  const next = state.last_seq + 1;
  if (from !== undefined && from > next) {
    throw badRequest(`sequence ${from} is beyond the end of the log of database "${log.requests.database}", which is ${next - 1}: the position is from another log, or from before a restore; begin with at most ${next}, or query the live documents and begin from now`);
  }
  return Math.max(from ?? next, 1);
}

/** Returns the sequence of the last event that a feed chooses, 0 for none. */
async function last(log: Log, o: FeedOptions): Promise<number> {
  const found = await Promise.all(filters(log, o).map((last_by_subj) => log.get({ last_by_subj })));
  return Math.max(...found.map((m) => m?.seq ?? 0));
}

/** Returns the consumer of a durable. */
export function durableConsumer(log: Log, o: FeedOptions & { durable: string }): Promise<ConsumerInfo> {
  const ackWait = o.ackWait === undefined ? undefined : milliseconds(o.ackWait);
  return openConsumer(log, { name: o.durable, filters: filters(log, o), ackWait }, () => begin(log, o));
}

/** A feed that is open. */
export interface Feed {
  reader: Reader;
  /** The last sequence, undefined for none. */
  end: number | undefined;
}

/** Opens a feed, undefined if it is empty. Throws a RangeError, a LapseError or the signal's reason. */
export async function openFeed(log: Log, o: FeedOptions): Promise<Feed | undefined> {
  check(o);
  o.signal?.throwIfAborted();
  const now = o.until === "now";
  const end = now ? await last(log, o) : typeof o.until === "number" ? o.until : undefined;
  if (end === 0) {
    return undefined;
  }
  const stop = now ? end : undefined; // where a reader knows that it ends
  if (o.durable !== undefined) {
    const info = await durableConsumer(log, { ...o, durable: o.durable });
    return stop !== undefined && info.ack_floor.stream_seq >= stop ? undefined : { reader: new Durable(log, o.signal, info, stop), end };
  }
  const first = await begin(log, o);
  if (stop !== undefined && first > stop) {
    return undefined;
  }
  const reader = new Ordered(log, o.signal, filters(log, o), first, stop);
  await reader.open().catch(async (e) => {
    await reader.close();
    throw e;
  });
  return { reader, end };
}

/** Reads a feed up to its end. Its caller acknowledges the deliveries, and closes the reader. */
export async function* read<T>(log: Log, o: FeedOptions, { reader, end = Infinity }: Feed): AsyncGenerator<[Event<T>, Delivery], void, undefined> {
  for (let d: Delivery | undefined; (d?.seq ?? 0) < end; ) {
    d = await reader.next();
    if (!d || d.seq > end) {
      return;
    }
    const event = decodeEvent<T>(d, log.requests.parse);
    if (event && o.until instanceof Date && event.time > o.until) {
      return;
    }
    if (event && ((o.types?.length && !o.types.includes(event.type)) || (o.collection ?? event.collection) !== event.collection)) {
      throw badRequest(`the feed received event ${event.seq}, a ${event.type} of ${event.collection}, which its options exclude: was the filter of consumer "${o.durable}" changed? Use one durable name for each choice of events`);
    }
    if (event && !(o.from instanceof Date && event.time < o.from)) {
      yield [event, d];
    } else {
      reader.done(d);
    }
  }
}

/** Reads a feed in a loop, which acknowledges an event when it asks for the next one. */
export async function* changes<T>(log: Log, o: FeedOptions): AsyncGenerator<Event<T>, void, undefined> {
  const feed = await openFeed(log, o);
  if (!feed) {
    return;
  }
  try {
    for await (const [event, d] of read<T>(log, o, feed)) {
      const traced = await handling(log, event);
      try {
        yield event;
      } finally {
        traced && log.requests.tracer?.end(traced);
      }
      feed.reader.done(d);
    }
  } finally {
    await feed.reader.close();
  }
}
