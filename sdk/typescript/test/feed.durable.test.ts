import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstreamManager } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/nats-core";
import { Lapse, LapseError, type Event } from "../src/index.js";
import { startLapse, type Server, type TestDatabase } from "../src/test.js";

let server: Server;
let nc: NatsConnection;
before(async () => {
  server = await startLapse();
  nc = await server.connect();
});
after(() => server.stop());

/** Opens a database with a number of documents, 0 to n-1, whose first event has sequence first. */
async function withDocuments(n: number): Promise<{ db: TestDatabase; first: number }> {
  const db = await server.open();
  await db.createCollection("c");
  await create(db, 0, n);
  for await (const e of db.changes({ from: "start", types: ["DocumentCreated"] })) {
    return { db, first: e.seq };
  }
  throw new Error("no event");
}

async function create(db: Lapse, from: number, to: number): Promise<void> {
  for (let i = from; i < to; i++) {
    await db.collection("c").create(String(i), { n: i });
  }
}

/** Reads the ids of a feed's events; done ends the loop in the body of the last one. */
async function ids(feed: AsyncIterable<Event<unknown>>, done: (id: string, all: string[]) => unknown = () => false): Promise<string[]> {
  const all: string[] = [];
  for await (const e of feed) {
    all.push(e.id!);
    if (await done(e.id!, all)) {
      break;
    }
  }
  return all;
}

const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => String(from + i));

/** Returns the state of a durable's consumer. */
async function consumer(db: Lapse, name: string) {
  return (await jetstreamManager(nc)).consumers.info("LAPSE_" + db.database, name);
}

/** Waits until a condition holds. */
async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) {
    await sleep(20);
  }
}

const created = { types: ["DocumentCreated"] };

async function refused(work: Promise<unknown>, code: number, text: RegExp): Promise<void> {
  await assert.rejects(work, (e) => e instanceof LapseError && e.code === code && text.test(e.message));
}

test("break leaves the present event to the next reader, and a durable continues", async () => {
  const { db } = await withDocuments(6);
  const options = { durable: "d", from: "start", ...created } as const;
  assert.deepEqual(await ids(db.changes(options), (id) => id === "2"), ["0", "1", "2"]);
  assert.deepEqual(await ids(db.changes({ ...options, until: "now" })), ["2", "3", "4", "5"]);
  assert.deepEqual(await ids(db.changes({ ...options, until: "now" })), []);
  await create(db, 6, 7);
  assert.deepEqual(await ids(db.changes({ ...options, until: "now" })), ["6"]);
  await assert.rejects(ids(db.changes({ durable: "e", from: "start" }), () => assert.fail("body")), /body/);
  assert.deepEqual(await ids(db.changes({ durable: "e", ...{ until: "now" } as const })), [undefined, ...range(0, 7)]);
});

test("at its end a reader unpins itself, and returns what it has, first to last", async () => {
  const { db, first } = await withDocuments(8);
  const own = await server.connect();
  const sent: string[] = [];
  const { protocol } = own as unknown as { protocol: { publish(subject: string, body?: string | Uint8Array, options?: object): void } };
  const publish = protocol.publish.bind(protocol);
  protocol.publish = (subject, body = "", options) => {
    sent.push(`${subject} ${typeof body === "string" ? body : new TextDecoder().decode(body)}`);
    publish(subject, body, options);
  };
  await ids(new Lapse(own, { database: db.database }).changes({ durable: "d", from: "start", ...created }), async (id) => {
    if (id === "3") {
      await until(async () => (await consumer(db, "d")).num_ack_pending > 2);
    }
    return id === "3";
  });
  const end = sent.slice(sent.findIndex((s) => s.startsWith("$JS.API.CONSUMER.UNPIN.")));
  assert.equal(end[0], `$JS.API.CONSUMER.UNPIN.LAPSE_${db.database}.d {"group":"readers"}`);
  const returned = end.slice(1).map((s) => [Number(s.split(".").at(-4)), s.split(" ")[1]]);
  assert(returned.length > 2, end.join("\n"));
  assert.deepEqual(returned, returned.map((_, i) => [first + 3 + i, "-NAK"]));
});

test("a durable without from begins with the next event", async () => {
  const { db } = await withDocuments(2);
  assert.deepEqual(await ids(db.changes({ durable: "d", until: "now", ...created })), []);
  await create(db, 2, 4);
  assert.deepEqual(await ids(db.changes({ durable: "d", until: "now", ...created })), ["2", "3"]);
});

test("the consumer of a durable is that of the Go client", async () => {
  const { db, first } = await withDocuments(2);
  await ids(db.changes({ durable: "d", from: first + 1, collection: "c", types: ["DocumentDeleted", "DocumentCreated"], until: "now", ackWait: "7s" }));
  const { config } = await consumer(db, "d");
  const events = `lapse.${db.database}.events.c.`;
  for (const [key, want] of Object.entries({
    durable_name: "d", filter_subjects: [events + "DocumentCreated", events + "DocumentDeleted"], deliver_policy: "by_start_sequence", opt_start_seq: first + 1,
    ack_policy: "explicit", ack_wait: 7e9, max_ack_pending: 1000, priority_policy: "pinned_client", priority_groups: ["readers"], priority_timeout: 7e9,
  })) {
    assert.deepEqual(config[key as keyof typeof config], want, key);
  }
});

test("a reader that chooses other events, or is of another program, is refused", async () => {
  const { db } = await withDocuments(1);
  await ids(db.changes({ durable: "d", from: "start", until: "now", ...created, ackWait: 6 }));
  await refused(ids(db.changes({ durable: "d", until: "now" })), 400, /reads lapse\..*\.DocumentCreated, and this reader selects .*nats consumer rm LAPSE_t\S+ d\)/);
  await refused(ids(db.changes({ durable: "d", until: "now", ...created, ackWait: "5s" })), 400, /ack wait 6 s, and this reader asks for 5 s/);
  const jsm = await jetstreamManager(nc);
  const stream = "LAPSE_" + db.database;
  await jsm.consumers.add(stream, { durable_name: "theirs", ack_policy: "all" });
  await refused(ids(db.changes({ durable: "theirs", until: "now" })), 400, /belongs to another program/);
  const events = `lapse.${db.database}.events.`;
  await jsm.consumers.add(stream, { durable_name: "same", ack_policy: "explicit", max_ack_pending: 1, filter_subject: events + "c.>", deliver_policy: "all" });
  assert.deepEqual(await ids(db.changes({ durable: "same", collection: "c", until: "now" })), [undefined, "0"]);
  for (const options of [{ durable: "" }, { durable: "a.b" }, { collection: "a b" }, { types: ["Nothing"] }, { from: 1000 }]) {
    await refused(ids(db.changes(options)), 400, /./);
  }
  for (const options of [{ from: NaN }, { until: 1.5 }, { from: new Date(NaN) }, { durable: "x", ackWait: "2h" }, { durable: "x", ackWait: 0.5 }]) {
    await assert.rejects(ids(db.changes(options)), RangeError);
  }
});

test("of two readers one reads and the other waits, and takes over in order", async () => {
  const { db } = await withDocuments(50);
  const options = { durable: "d", from: "start", ...created } as const;
  const other = new Lapse(await server.connect(), { database: db.database });
  let started = () => {};
  const ready = new Promise<void>((resolve) => (started = resolve));
  const first = ids(db.changes(options), async (id) => {
    if (id === "3") {
      await create(db, 50, 55);
      started();
    }
    return id === "20";
  });
  await ready;
  const second = ids(other.changes({ ...options, until: "now" }));
  assert.deepEqual(await first, range(0, 21));
  assert.deepEqual(await second, range(20, 55));
});

test("a body that takes longer than the ack wait keeps its event", async () => {
  const { db } = await withDocuments(3);
  const got = await ids(db.changes({ durable: "d", from: "start", until: "now", ...created, ackWait: 6 }), async (id) => {
    if (id === "0") {
      await sleep(8000);
      assert.equal((await consumer(db, "d")).num_redelivered, 0);
    }
  });
  assert.deepEqual(got, range(0, 3));
});

test("an aborted signal ends a feed, after the body of the present event", async () => {
  const { db } = await withDocuments(3);
  for (const durable of [undefined, "d"]) {
    const stop = new AbortController();
    const all: string[] = [];
    const reading = ids(db.changes({ ...(durable && { durable }), from: "start", signal: stop.signal, ...created }), (id) => {
      all.push(id);
      if (id === "1") {
        stop.abort(new Error("enough"));
      }
    });
    await assert.rejects(reading, /enough/);
    assert.deepEqual(all, ["0", "1"]);
    const idle = new AbortController();
    const waiting = ids(db.changes({ ...(durable && { durable: "idle" }), signal: idle.signal }));
    setTimeout(() => idle.abort(), 50);
    await assert.rejects(waiting, { name: "AbortError" });
  }
  assert.deepEqual(await ids(db.changes({ durable: "d", until: "now", ...created })), ["2"]);
});

test("a feed fails with a LapseError when its consumer is deleted or its connection is closed", async () => {
  const { db } = await withDocuments(1);
  const jsm = await jetstreamManager(nc);
  const reading = ids(db.changes({ durable: "d", from: "start", ...created }));
  await until(async () => (await consumer(db, "d").catch(() => undefined))?.ack_floor.consumer_seq === 1);
  await jsm.consumers.delete("LAPSE_" + db.database, "d");
  await refused(reading, 503, /deleted/);
  for (const durable of [undefined, "e"]) {
    const own = await server.connect();
    const feed = ids(new Lapse(own, { database: db.database }).changes({ ...(durable && { durable }), from: "start" }), () => own.close().then(() => false));
    await refused(feed, 503, /closed/);
  }
});

test("at most 500 events are read ahead, and 16 MiB", async () => {
  const db = await server.open();
  await db.createCollection("c");
  await Promise.all(range(0, 1500).map((id) => db.collection("c").create(id, {})));
  const large = { text: "x".repeat(1 << 20) };
  for (const id of range(1500, 1540)) {
    await db.collection("c").create(id, large);
  }
  let most = 0;
  const seen = await ids(db.changes({ durable: "d", from: "start", until: "now", ...created }), async (id) => {
    if (Number(id) % 100 === 0 || Number(id) >= 1500) {
      await sleep(20); // the reader fetches what it may
      const { num_ack_pending: ahead } = await consumer(db, "d");
      most = Math.max(most, ahead);
      assert(ahead <= (Number(id) >= 1516 ? 16 : 500), `${ahead} events ahead at ${id}`);
    }
  });
  assert.equal(seen.length, 1540);
  assert(most > 250, `${most} read ahead at most`);
});
