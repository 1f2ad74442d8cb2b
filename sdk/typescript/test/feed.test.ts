import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Event, FeedOptions } from "../src/index.js";
import { startLapse, type Server, type TestDatabase } from "../src/test.js";

let server: Server;
before(async () => void (server = await startLapse()));
after(() => server.stop());

/** Returns what a feed yields, as `seq Type collection/id`, after n events or at its end. */
async function texts(feed: AsyncIterable<Event<unknown>>, n = Infinity): Promise<string[]> {
  const all: string[] = [];
  for await (const e of feed) {
    all.push(`${e.seq} ${e.type} ${e.collection}/${e.id ?? ""}`);
    if (all.length >= n) {
      break;
    }
  }
  return all;
}

/** Opens a database with documents a to c in orders and d in carts, each created in a second of its own. */
async function withOrders(): Promise<TestDatabase> {
  const db = await server.open({ at: new Date("2026-01-01T00:00:00Z") });
  await db.createCollection("orders", { defaultTtl: "1h", warnBefore: "10m" });
  await db.createCollection("carts");
  for (const [coll, id] of [["orders", "a"], ["orders", "b"], ["carts", "d"], ["orders", "c"]] as const) {
    await db.advance(1);
    await db.collection(coll).create(id, { n: id });
  }
  return db;
}

test("a feed chooses events, and begins and ends where it is told", async () => {
  await using db = await withOrders();
  const all = await texts(db.changes({ from: "start", until: "now" }));
  const types = all.map((text) => text.replace(/^\d+ /, ""));
  assert.deepEqual(types, ["CollectionCreated orders/", "CollectionCreated carts/", "DocumentCreated orders/a", "DocumentCreated orders/b", "DocumentCreated carts/d", "DocumentCreated orders/c"]);
  const seqs = all.map((text) => Number(text.split(" ")[0]));
  const cases: [FeedOptions, string[]][] = [
    [{ collection: "carts" }, [all[1]!, all[4]!]],
    [{ types: ["CollectionCreated"] }, all.slice(0, 2)],
    [{ types: ["DocumentCreated", "CollectionCreated"], collection: "orders" }, [all[0]!, all[2]!, all[3]!, all[5]!]],
    [{ from: seqs[3]! }, all.slice(3)],
    [{ from: new Date("2026-01-01T00:00:03Z") }, all.slice(4)],
    [{ from: new Date("2026-01-01T00:00:02.001Z") }, all.slice(4)],
    [{ from: new Date("2030-01-01T00:00:00Z") }, []],
    [{ until: seqs[3]! }, all.slice(0, 4)],
    [{ until: new Date("2026-01-01T00:00:02Z") }, all.slice(0, 4)],
    [{ collection: "none" }, []],
    [{ until: 0 }, []],
  ];
  for (const [options, want] of cases) {
    assert.deepEqual(await texts(db.changes({ from: "start", until: "now", ...options })), want, JSON.stringify(options));
    const durable = "d" + cases.findIndex(([o]) => o === options);
    assert.deepEqual(await texts(db.changes({ durable, from: "start", until: "now", ...options })), want, "durable " + JSON.stringify(options));
  }
});
