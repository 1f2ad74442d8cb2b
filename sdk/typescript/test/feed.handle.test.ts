import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { jetstreamManager } from "@nats-io/jetstream";
import { Lapse, LapseError, type Event, type HandleOptions } from "../src/index.js";
import { triesOf } from "../src/handle.js";
import { startLapse, type Server, type TestDatabase } from "../src/test.js";

let server: Server;
before(async () => void (server = await startLapse()));
after(() => server.stop());

/** Opens a database with events of documents in a collection c, in this order. */
async function withEvents(...documents: string[]): Promise<TestDatabase> {
  const db = await server.open();
  await db.createCollection("c");
  for (const id of documents) {
    await db.collection("c").upsert(id, {});
  }
  return db;
}

const all = { durable: "d", from: "start", until: "now" } as const;

test("workers handle documents at the same time, and the events of each in order", async () => {
  const rounds = 12;
  const documents = ["a", "b", "c", "d", "e", "f", "g", "h"];
  const db = await withEvents(...Array.from({ length: rounds }, () => documents).flat());
  const seen = new Map<string, number[]>();
  let [running, most] = [0, 0];
  let together = () => {};
  const met = new Promise<void>((resolve) => (together = resolve));
  await db.handle(
    async (e) => {
      seen.set(e.id!, [...(seen.get(e.id!) ?? []), e.seq]);
      most = Math.max(most, ++running);
      if (running === 2) {
        together();
      }
      if (seen.get(e.id!)!.length > 1) {
        await met; // pulls grow from one event, so the first ones may be alone
      }
      running--;
    },
    { ...all, workers: 4, types: ["DocumentCreated", "DocumentReplaced"] },
  );
  assert(most >= 2 && most <= 4, `${most} at once`);
  assert.equal(seen.size, documents.length);
  for (const seqs of seen.values()) {
    assert.equal(seqs.length, rounds);
    assert.deepEqual(seqs, seqs.toSorted((a, b) => a - b));
  }
  for await (const e of db.changes({ durable: "d", until: "now", types: ["DocumentCreated", "DocumentReplaced"] })) {
    assert.fail(`event ${e.seq} is handled and not acknowledged`);
  }
});

test("an event without a document is handled alone", async () => {
  const db = await withEvents("a", "b", "a", "c");
  await db.replaceCollection("c", { defaultTtl: "1h" });
  await db.collection("c").upsert("a", {});
  const order: string[] = [];
  let running = 0;
  await db.handle(
    async (e) => {
      assert.equal(running++ > 0 && e.id === undefined, false);
      await new Promise(setImmediate);
      order.push(e.type);
      running--;
    },
    { ...all, workers: 8 },
  );
  const at = order.indexOf("CollectionReplaced");
  assert.deepEqual([order[0], at, order.length], ["CollectionCreated", 5, 7]);
});

test("an event whose handler fails too often is put aside", async () => {
  const db = await withEvents("a", "bad", "b");
  const tries = new Map<string, number>();
  const aside: string[] = [];
  await db.handle(
    async ({ id = "" }) => {
      tries.set(id, (tries.get(id) ?? 0) + 1);
      if (id === "bad") {
        throw new Error("bad luck");
      }
    },
    { ...all, poison: { after: 2, handler: async (e, error) => void aside.push(`${e.id}: ${(error as Error).message}`) } },
  );
  assert.deepEqual(aside, ["bad: bad luck"]);
  assert.deepEqual([...tries], [["", 1], ["a", 1], ["bad", 2], ["b", 1]]);
});

test("without poison an event is tried again, and the feed's end counts as no failure", async () => {
  const db = await withEvents("a", "b");
  let failures = 1;
  const stop = new AbortController();
  const seen: string[] = [];
  const handling = db.handle(
    async ({ id = "" }, signal) => {
      seen.push(id);
      if (id === "a" && failures-- > 0) {
        throw new Error("once");
      }
      if (id === "b") {
        stop.abort(new Error("enough"));
        signal.throwIfAborted();
      }
    },
    { ...all, types: ["DocumentCreated"], signal: stop.signal, poison: { after: 3, handler: async () => assert.fail("poison") } },
  );
  await assert.rejects(handling, /enough/);
  assert.deepEqual(seen, ["a", "a", "b"]);
  await db.handle(async ({ id = "" }) => void seen.push(id), { ...all, types: ["DocumentCreated"] });
  assert.deepEqual(seen, ["a", "a", "b", "b"]);
});

test("an error of the poison handler ends the feed", async () => {
  const db = await withEvents("a", "b");
  const broken = new Error("nowhere to put it");
  const options: HandleOptions<unknown> = { ...all, poison: { after: 1, handler: () => Promise.reject(broken) } };
  await assert.rejects(db.handle(() => Promise.reject(new Error("no")), options), broken);
  const left: Event<unknown>[] = [];
  await db.handle(async (e) => void left.push(e), all);
  assert.equal(left.length, 3);
  for (const bad of [{ workers: 0 }, { workers: 1001 }, { workers: 1.5 }, { poison: { after: 0, handler: async () => {} } }]) {
    await assert.rejects(db.handle(async () => {}, { ...all, ...bad }), (e) => e instanceof LapseError && e.code === 400);
  }
});

test("tries are counted in the consumer's metadata, and a running one is a crash", async () => {
  const d = { seq: 7, times: 2 };
  assert.deepEqual(triesOf({}, { seq: 7, times: 1 }, 3), { failed: 0, crashed: false });
  assert.deepEqual(triesOf({}, d, 3), { failed: 1, crashed: false });
  assert.deepEqual(triesOf({}, d, 1), { failed: 0, crashed: false });
  assert.deepEqual(triesOf({ seq: 6, failed: 2, running: true }, d, 3), { failed: 1, crashed: false });
  assert.deepEqual(triesOf({ seq: 7, failed: 1 }, d, 3), { failed: 1, crashed: false });
  assert.deepEqual(triesOf({ seq: 7, failed: 2, running: true }, d, 3), { failed: 3, crashed: true });

  const db = await withEvents("kills", "b");
  const first = (await db.collection("c").get("kills"))!.seq;
  const options = { ...all, types: ["DocumentCreated"] };
  const nc = await server.connect();
  const jsm = await jetstreamManager(nc);
  const stream = "LAPSE_" + db.database;
  const tries = async () => JSON.parse((await jsm.consumers.info(stream, "d")).config.metadata!["lapse.tries"]!);
  // The handler's process ends: its connection, that is.
  const aside: string[] = [];
  const poison = { after: 2, handler: async (e: Event<unknown>, error: unknown) => void aside.push(`${e.id}: ${(error as Error).message}`) };
  for (const life of [1, 2]) {
    const dying = await server.connect();
    const handling = new Lapse(dying, { database: db.database }).handle(
      async (_, signal) => {
        const ended = once(signal, "abort");
        await dying.close();
        await ended;
        signal.throwIfAborted();
      },
      { durable: "d", from: "start", types: options.types, poison, ackWait: 1 },
    );
    await assert.rejects(handling, (e) => e instanceof LapseError && e.code === 503);
    if (life === 2) {
      assert.deepEqual(await tries(), { seq: first, failed: 1, running: true });
    }
  }
  const seen: string[] = [];
  await db.handle(async ({ id = "" }) => void seen.push(id), { ...options, poison });
  assert.deepEqual(seen, ["b"]);
  assert.deepEqual(aside, [`kills: event ${first}: the process ended while its handler ran, in try 2 of 2`]);
});
