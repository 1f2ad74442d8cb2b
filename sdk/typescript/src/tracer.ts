import type { Log } from "./log.js";
import type { Event } from "./types.js";

/** Observes requests, and the handling of events: `@lapsedb/lapse/otel` makes spans of them. */
export interface Tracer {
  /** Begins a request. */
  call(call: { database: string; operation: string; collection?: string }): Traced;
  /** Begins the handling of an event: the body of a loop, or a try of a handler. write is the trace context of the write that the event is about. */
  handle(event: Event<unknown>, database: string, write: string | undefined): Traced;
  /** Ends what began; error is why it failed. */
  end(traced: Traced, error?: unknown): void;
}

/** What a Tracer observes. */
export interface Traced {
  /** What a request sends besides its own headers. */
  headers?: Record<string, string>;
  /** Runs what is observed. */
  run<R>(body: () => R): R;
}

/** The trace contexts of writes, by sequence, which tries of an event and its warning share. */
const writes = new WeakMap<Log, Map<string, string | undefined>>();

/** Returns the trace context of the write that made an event, or the version that an expiry or warning is about. */
async function writeOf(log: Log, { deadline, collection, previous = "", traceparent }: Event<unknown>): Promise<string | undefined> {
  if (!deadline) {
    return traceparent;
  }
  const known = writes.get(log) ?? new Map<string, string | undefined>();
  if (!known.has(previous)) {
    const found = await log.get({ seq: Number(previous), next_by_subj: `${log.events}${collection}.>` }).catch(() => null);
    if (found === null) {
      return undefined; // a span without a link, rather than none
    }
    if (known.size >= 1000) {
      known.clear();
    }
    writes.set(log, known);
    known.set(previous, found?.seq === Number(previous) ? found.traceparent : undefined);
  }
  return known.get(previous);
}

/** Begins the handling of an event, undefined without a Tracer. */
export async function handling(log: Log, event: Event<unknown>): Promise<Traced | undefined> {
  const { tracer, database } = log.requests;
  return tracer?.handle(event, database, await writeOf(log, event));
}

/** Runs what a Tracer may observe. */
export async function observed<R>(tracer: Tracer | undefined, traced: Traced | undefined, body: () => Promise<R>): Promise<R> {
  if (!tracer || !traced) {
    return body();
  }
  try {
    const result = await traced.run(body);
    tracer.end(traced);
    return result;
  } catch (e) {
    tracer.end(traced, e ?? "undefined");
    throw e;
  }
}
