import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstreamManager, type ConsumerInfo } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Lapse, LapseError, type FeedOptions } from "../src/index.js";
import { startLapse, type Server, type TestDatabase } from "../src/test.js";
import { freePort, kill, Proxy, serve } from "./process.js";

let server: Server;
before(async () => void (server = await startLapse()));
after(() => server.stop());

async function withDocuments(n: number, value: object = {}): Promise<TestDatabase> {
  const db = await server.open();
  await db.createCollection("c");
  for (let i = 0; i < n; i += 500) {
    await db.collection("c").batch(Array.from({ length: Math.min(500, n - i) }, (_, j) => ({ op: "create" as const, id: String(i + j), value })));
  }
  return db;
}

const created: FeedOptions = { from: "start", until: "now", types: ["DocumentCreated"] };

/** Returns the consumers of feeds without a durable. */
async function consumers(db: Lapse): Promise<ConsumerInfo[]> {
  const jsm = await jetstreamManager(await server.connect());
  const all = [];
  for await (const info of jsm.consumers.list("LAPSE_" + db.database)) {
    all.push(info);
  }
  return all.filter((info) => info.name.startsWith("lapse_reader_"));
}

test("a feed without a durable continues after cuts of its connection, without gaps or repeats", async (t) => {
  const db = await withDocuments(2000);
  const proxy = new Proxy(Number(new URL(server.url).port));
  await proxy.listen();
  t.after(() => proxy.close());
  const nc = await connect({ servers: `127.0.0.1:${proxy.port}`, maxReconnectAttempts: -1, reconnectTimeWait: 20 });
  const ids: number[] = [];
  for await (const e of new Lapse(nc, { database: db.database }).changes(created)) {
    ids.push(Number(e.id));
    if (ids.length % 300 === 0) {
      proxy.cut();
      await sleep(0);
    }
  }
  assert.deepEqual(ids, Array.from({ length: 2000 }, (_, i) => i));
  await nc.close();
});

test("a feed without a durable goes on without its consumer, and deletes it at its end", async () => {
  const db = await withDocuments(1200);
  const jsm = await jetstreamManager(await server.connect());
  let n = 0;
  for await (const e of db.changes(created)) {
    assert.equal(Number(e.id), n++);
    if (n === 600) {
      const [info] = await consumers(db);
      await jsm.consumers.delete("LAPSE_" + db.database, info!.name);
    }
  }
  assert.equal(n, 1200);
  assert.deepEqual(await consumers(db), []);
});

test("a feed without a durable reads at most 500 events ahead, and 16 MiB", async () => {
  for (const [size, limit] of [[10, 500], [1 << 20, 16]] as const) {
    const db = await withDocuments(size > 1000 ? 3 : 1500, { text: "x".repeat(size) });
    for (let i = 3; size > 1000 && i < 40; i++) {
      await db.collection("c").create(String(i), { text: "x".repeat(size) });
    }
    let [n, most] = [0, 0];
    for await (const _ of db.changes(created)) {
      if (n++ % (limit / 2) === 0) {
        await sleep(50); // the reader fetches what it may
        const [info] = await consumers(db);
        most = Math.max(most, info!.delivered.consumer_seq - n);
      }
    }
    assert(most <= limit && most > limit / 4, `${most} events of ${size} bytes ahead`);
  }
});

test("an account that imports the log reads it by its prefix", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "lapse-import-"));
  const port = await freePort();
  const api = ["STREAM.INFO.LAPSE_main", "STREAM.MSG.GET.LAPSE_main", "CONSUMER.CREATE.LAPSE_main.>", "CONSUMER.INFO.LAPSE_main.*", "CONSUMER.DELETE.LAPSE_main.*", "CONSUMER.UNPIN.LAPSE_main.*"];
  const account = (name: string, user: string, inboxes: string) => `${name} {
    users: [{ user: ${user}, password: secret }]
    imports: [
      ${api.map((s) => `{ service: { account: CLIENTS, subject: "$JS.API.${s}" }, to: "LAPSE.API.${s}" }`).join("\n      ")}
      { service: { account: CLIENTS, subject: "lapse.main.api.>" } }
      { service: { account: CLIENTS, subject: "$JS.ACK.LAPSE_main.billing.>" } }
      { service: { account: CLIENTS, subject: "$JS.FC.LAPSE_main.>" } }
      { service: { account: LAPSE, subject: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.billing" }, to: "LAPSE.API.CONSUMER.MSG.NEXT.LAPSE_main.billing" }
      { stream: { account: LAPSE, subject: "${inboxes}.>" } }
    ]
  }`;
  const file = join(directory, "nats.conf");
  writeFileSync(file, `accounts {\n  ${account("APP", "app", "_INBOX.app")}\n}\n`);
  const process = await serve(port, "--store-dir", join(directory, "store"), "--nats-config", file);
  const open = async (inboxPrefix: string) => {
    const nc = await connect({ servers: `127.0.0.1:${port}`, user: "app", pass: "secret", inboxPrefix });
    t.after(() => nc.close());
    return new Lapse(nc, { apiPrefix: "LAPSE.API", timeout: 3 });
  };
  t.after(async () => {
    await kill(process);
    rmSync(directory, { recursive: true, force: true, maxRetries: 3 });
  });
  const db = await open("_INBOX.app");
  await db.createCollection("c");
  const text = "x".repeat(10_000);
  for (let i = 0; i < 3; i++) {
    await db.collection("c").batch(Array.from({ length: 300 }, (_, j) => ({ op: "create" as const, id: String(300 * i + j), value: { text } })));
  }
  for (const durable of [undefined, "billing"]) {
    const ids: number[] = [];
    for await (const e of db.changes({ ...created, ...(durable && { durable }) })) {
      ids.push(Number(e.id));
    }
    assert.deepEqual(ids, Array.from({ length: 900 }, (_, i) => i), durable);
  }
  const read = async (lapse: Lapse, options: object) => {
    for await (const e of lapse.changes(options)) {
      return e;
    }
    return undefined;
  };
  const refused = (text: RegExp) => (e: unknown) => e instanceof LapseError && e.code === 503 && text.test(e.message);
  await assert.rejects(read(db, { durable: "other", from: "start" }), refused(/import \$JS\.API\.CONSUMER\.MSG\.NEXT\.LAPSE_main\.other/));
  await assert.rejects(read(await open("_INBOX.elsewhere"), { from: "start" }), refused(/_INBOX\.elsewhere|_INBOX\.app/));
});
