import type { Delivery } from "./event.js";

/** Limits of what is received and not yet acknowledged. */
export const maxEvents = 500;
export const maxBytes = 16 << 20;

/** Bytes of the largest document. */
const maxEvent = 2 << 20;

/** What the state of the consumer is compared with, which is requested after it. */
export interface Inquiry {
  first: Delivery;
  /** Unacknowledged messages that were received with the present pin. */
  own: number;
  acks: number;
  gaps: number;
}

/**
 * The messages of a durable's consumer that this reader has received and not yet
 * acknowledged. It decides which to hand out; clients in all languages follow one rule.
 *
 * The server pins one reader, numbers the deliveries, and repeats a delivery that is not
 * acknowledged in time. A message can be missing here although a later one has arrived: a
 * reader that crashed still has it, or its delivery was lost on the way. So:
 *
 * 1. A delivery with another pin, or whose number does not follow the last one, unsettles
 *    the window.
 * 2. A settled window hands out its first message.
 * 3. An unsettled one hands out its first message only if that is the first one that the
 *    consumer has delivered and not seen acknowledged.
 * 4. The window is settled when the consumer has no more unacknowledged messages than this
 *    reader has received with its present pin: then none is missing.
 */
export class Window {
  /** Received and not yet handed out, in order. */
  ready: Delivery[] = [];
  /** Received and neither acknowledged nor returned, by sequence. */
  readonly unacked = new Map<number, Delivery>();
  /** Whether no message is missing. */
  settled: boolean;
  /** The pin of the last delivery. */
  pin = "";
  #number = 0; // of the last delivery
  #bytes = 0; // of unacked
  #acks = 0;
  #gaps = 0;
  #missing = false; // a message that precedes ready is known to be missing

  /** @param pinned false for a consumer of an earlier release, which allows one message in flight */
  constructor(readonly pinned: boolean) {
    this.settled = !pinned;
  }

  /** Adds a message. A redelivery replaces the earlier delivery. */
  add(m: Delivery): void {
    if (this.pinned && (m.pin !== this.pin || m.number !== this.#number + 1)) {
      this.settled = false;
      this.#gaps++;
    }
    [this.pin, this.#number, this.#missing] = [m.pin, m.number, false];
    const earlier = this.unacked.get(m.seq);
    this.unacked.set(m.seq, m);
    this.#bytes += m.size - (earlier?.size ?? 0);
    const before = this.ready.findLastIndex((r) => r.seq < m.seq);
    if (this.ready[before + 1]?.seq === m.seq) {
      this.ready[before + 1] = m;
    } else if (!earlier) {
      this.ready.splice(before + 1, 0, m);
    }
  }

  /** Hands out the first message if the window is settled. */
  take(): Delivery | undefined {
    return this.settled ? this.ready.shift() : undefined;
  }

  /** Begins a comparison with the state of the consumer; undefined if there is nothing to hand out. */
  inquire(): Inquiry | undefined {
    const first = this.ready[0];
    // Another reader may have acknowledged what was received with an earlier pin.
    const own = [...this.unacked.values()].filter((m) => m.pin === this.pin).length;
    return first && { first, own, acks: this.#acks, gaps: this.#gaps };
  }

  /**
   * Ends a comparison, and hands out the first message if it may be.
   *
   * @param isFirst whether no message before the first one is unacknowledged
   * @param pending the number of unacknowledged messages of the consumer
   */
  settle(q: Inquiry, isFirst: boolean, pending: number): Delivery | undefined {
    if (q.gaps !== this.#gaps || this.ready[0]?.seq !== q.first.seq) {
      return undefined; // the window has changed since
    }
    this.settled = pending <= q.own - (this.#acks - q.acks);
    this.#missing = !this.settled && !isFirst;
    return this.#missing ? undefined : this.ready.shift();
  }

  /** Removes a message that is acknowledged. */
  remove(seq: number): void {
    const m = this.unacked.get(seq);
    if (m) {
      this.unacked.delete(seq);
      this.#bytes -= m.size;
      this.#acks++;
    }
  }

  /** Removes what was not handed out: the server may have given it to another reader. */
  drop(): void {
    this.ready.forEach((m) => this.remove(m.seq));
    [this.ready, this.settled, this.#missing] = [[], !this.pinned, false];
    this.#gaps++;
  }

  /** Reports whether to pull a group now. A missing message needs no space. */
  mayPull(size: number): boolean {
    return this.#missing || (this.unacked.size <= size / 2 && this.#bytes < maxBytes);
  }

  /** Returns the request for a group, which brings no more than may wait here. */
  pull(size: number): { batch: number; max_bytes?: number } {
    const bytes = maxBytes - this.#bytes;
    const batch = Math.max(1, Math.min(size, maxEvents - this.unacked.size));
    const few = Math.max(1, Math.floor(bytes / maxEvent)); // as many fit, however large they are
    return batch <= few || few < 4 ? { batch: Math.min(batch, few) } : { batch, max_bytes: bytes };
  }
}

/**
 * Returns the size of the next group. Groups grow from one message while nothing is
 * redelivered: a message that crashes the process again and again is soon alone in flight.
 */
export function nextGroup(size: number, { received, bytes, redelivered, full }: { received: number; bytes: number; redelivered: boolean; full: boolean }): number {
  if (redelivered || received === 0) {
    return redelivered ? 1 : size;
  }
  return Math.max(1, Math.min(full ? 2 * size : size, maxEvents, Math.floor(maxBytes / (1 + Math.floor(bytes / received)))));
}

/** Reports whether the first message follows the acknowledged ones by its numbers. */
export function follows({ first }: Inquiry, floor: { stream_seq: number; consumer_seq: number }): boolean {
  return first.seq === floor.stream_seq + 1 || (first.times === 1 && first.number === floor.consumer_seq + 1);
}
