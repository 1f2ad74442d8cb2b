import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Lapse, LapseError, parseBigInt } from "../src/index.js";
import { startLapse, type Server } from "../src/test.js";

let server: Server;
before(async () => void (server = await startLapse()));
after(() => server.stop());

/** Asserts that a call is refused. */
export async function refused(call: Promise<unknown>, code: number, error: string, retryable = false): Promise<void> {
  await assert.rejects(call, (err: unknown) => {
    assert(err instanceof LapseError, String(err));
    assert.deepEqual([err.code, err.error, err.retryable], [code, error, retryable]);
    return true;
  });
}

test("a document expires at its deadline", async () => {
  const db = await server.open({ at: new Date("2026-01-01T00:00:00Z") });
  const info = await db.createCollection("sessions", { defaultTtl: "30m" });
  assert.deepEqual(
    { ...info, etag: "", modified: info.modified.toISOString() },
    { name: "sessions", defaultTtl: 1800, warnBefore: null, indexingPolicy: { indexingMode: "consistent", includedPaths: [] }, previousImages: true, metadata: {}, modified: "2026-01-01T00:00:00.000Z", etag: "" },
  );
  const sessions = db.collection<{ n: number }>("sessions");
  const a = await sessions.upsert("a", { n: 1 });
  assert.deepEqual(a, {
    id: "a", value: { id: "a", n: 1 }, etag: String(a.seq), seq: a.seq, modified: new Date("2026-01-01T00:00:00Z"),
    deadline: new Date("2026-01-01T00:30:00Z"), rule: "collection", held: false,
  });
  assert.deepEqual(await sessions.get("a", { minSeq: a.seq }), a);
  assert.deepEqual(await db.advance(1799), { now: new Date("2026-01-01T00:29:59Z"), seq: (await db.status()).seq, events: 0 });
  assert.notEqual(await sessions.get("a"), null);
  assert.equal((await db.advance("1s")).events, 1);
  assert.equal(await sessions.get("a"), null);
  await refused(sessions.replace("a", { n: 2 }), 404, "document_not_found");
  assert.equal((await sessions.restore("a")).value.n, 1);
  await db.drop();
  await refused(db.now(), 404, "database_not_found");
});

test("options of writes", async () => {
  await using db = await server.open({ at: new Date("2026-01-01T00:00:00Z") });
  await db.createCollection("c", { defaultTtl: "never", warnBefore: 60, metadata: { owner: "x" } });
  const c = db.collection("c");
  const end = new Date("2026-01-01T00:00:10.500Z");
  assert.deepEqual((await c.create("a", {}, { expireAt: end })).deadline, new Date("2026-01-01T00:00:11Z"));
  await db.advance(5);
  const kept = await c.patch("a", { n: 1 }, { keepDeadline: true });
  assert.deepEqual(kept.deadline, new Date("2026-01-01T00:00:11Z"));
  assert.deepEqual((await c.upsert("a", { ttl: 7 }, { ttl: "1m" })).value, { id: "a", ttl: 60 });
  assert.equal((await c.upsert("a", {}, { ttl: "never" })).deadline, null);
  await refused(c.upsert("a", {}, { ifMatch: kept.etag }), 412, "precondition_failed");
  const once = await c.upsert("b", { n: 1 }, { msgId: "x" });
  assert.equal((await c.upsert("b", { n: 1 }, { msgId: "x" })).etag, once.etag);
  const minute = { total: (unit: string) => (unit === "seconds" ? 60 : NaN) }; // as Temporal.Duration
  assert.equal((await c.upsert("b", {}, { ttl: minute })).value.ttl, 60);
  for (const ttl of [0, -2, 2 ** 31]) {
    await refused(c.upsert("b", {}, { ttl }), 400, "bad_ttl");
  }
  for (const ttl of [1.5, NaN, "soon", "", "1.5h", "-1s"]) {
    await assert.rejects(c.upsert("b", {}, { ttl }), RangeError);
  }
  await assert.rejects(c.upsert("b", {}, { expireAt: new Date(NaN) }), RangeError);
  await c.delete("b", { ifMatch: (await c.get("b"))!.etag });
  assert.equal(await c.get("b"), null);
});

test("members that only look like those of a reply are kept", async () => {
  await using db = await server.open();
  await db.createCollection("c");
  const value = { id: "a", _deadline: 1, _rule: "x", _hold: "y" };
  await db.collection("c").create("a", value);
  assert.deepEqual((await db.collection("c").get("a"))?.value, value);
});

test("touch, hold and release", async () => {
  await using db = await server.open({ at: new Date(0) });
  await db.createCollection("c", { defaultTtl: 100 });
  const c = db.collection("c");
  const a = await c.create("a", { n: 1 });
  await db.advance(10);
  assert.deepEqual(await c.touch("a", { minAge: "20s" }), { id: "a", etag: a.etag, modified: new Date(0), deadline: new Date(100_000), rule: "collection", held: false });
  const touched = await c.getAndTouch("a", { minAge: 10 });
  assert.deepEqual([touched?.value, touched?.deadline], [{ id: "a", n: 1 }, new Date(110_000)]);
  await refused(c.touch("b"), 404, "document_not_found");
  assert.equal(await c.getAndTouch("b"), null);
  await c.hold("a", "lawsuit");
  const held = await c.get("a");
  assert.deepEqual([held?.held, held?.reason, held?.deadline, held?.rule], [true, "lawsuit", null, null]);
  await refused(c.delete("a"), 423, "document_held");
  await db.advance("1d");
  await c.release("a");
  assert.equal(await c.get("a"), null);
  await refused(c.release("a"), 404, "document_not_found");
});

test("collections", async () => {
  await using db = await server.open();
  const info = await db.createCollection("a", { defaultTtl: "never" });
  assert.equal(info.defaultTtl, "never");
  await db.createCollection("b");
  await db.collection("b").create("x", {});
  assert.deepEqual((await db.listCollections()).map((c) => c.name), ["a", "b"]);
  const b = await db.getCollection("b");
  assert.deepEqual([b.defaultTtl, b.documents, b.held], [null, 1, 0]);
  await refused(db.replaceCollection("b", {}, { ifMatch: "1" }), 412, "precondition_failed");
  assert.equal((await db.replaceCollection("b", { warnBefore: "1m" }, { ifMatch: b.etag })).warnBefore, 60);
  await db.deleteCollection("b");
  await refused(db.getCollection("b"), 404, "collection_not_found");
  await refused(db.collection("b").get("x"), 404, "collection_not_found");
  await refused(db.createCollection("a"), 409, "collection_exists");
  await refused(db.createCollection("no.dots"), 400, "bad_request");
});

test("a batch has an outcome for each operation", async () => {
  await using db = await server.open({ at: new Date(0) });
  await db.createCollection("c", { defaultTtl: 100 });
  const c = db.collection("c");
  const [a, got, none, touched, held, gone, created] = await c.batch([
    { op: "upsert", id: "a", value: { n: 1 }, ttl: "1m" }, { op: "get", id: "a" }, { op: "get", id: "b" }, { op: "touch", id: "a" },
    { op: "hold", id: "a", reason: "r" }, { op: "delete", id: "a" }, { op: "create", id: "d", value: {}, expireAt: new Date(5000) },
  ]);
  assert.deepEqual([a?.item?.value, a?.item?.deadline, a?.item?.rule], [{ id: "a", n: 1, ttl: 60 }, new Date(60_000), "document"]);
  assert.deepEqual(got, a);
  assert.deepEqual([none?.error?.code, none?.error?.error, none?.item], [404, "document_not_found", undefined]);
  assert.deepEqual([touched?.item?.id, touched?.item?.value], ["a", undefined]);
  assert.deepEqual(held?.item, { id: "a", deadline: null, rule: null, held: true, reason: "r" });
  assert.equal(gone?.error?.error, "document_held");
  assert.deepEqual(created?.item?.deadline, new Date(5000));
  const results = await c.batch([{ op: "delete", id: "d" }, { op: "create", id: "a", value: {} }], { atomic: true });
  assert.deepEqual(results.map((r) => r.error?.error), ["failed_dependency", "document_exists"]);
  assert.deepEqual(await c.batch([{ op: "delete", id: "d" }]), [{ item: null }]);
  await refused(c.batch([{ op: "upsert", id: "a", value: {} }, ...Array(1000).fill({ op: "get", id: "a" })]), 400, "bad_request");
  await refused(c.batch([{ op: "get", id: "\ud800" }]), 400, "bad_id");
  assert.deepEqual((await c.batch([{ op: "get", id: "" }, { op: "get", id: "a\0" }])).map((r) => r.error?.error), ["bad_id", "bad_id"]);
});

test("queries by for await and pages", async () => {
  await using db = await server.open({ at: new Date(0) });
  await db.createCollection("c", { defaultTtl: "never" });
  const c = db.collection<{ n: number; t?: string }>("c");
  await c.batch(Array.from({ length: 250 }, (_, n) => ({ op: "create" as const, id: `d${String(n).padStart(3, "0")}`, value: { n }, ttl: n + 1 })));
  const ids = async (options?: object) => (await all(c.query(options))).map((item) => item.id);
  assert.equal((await ids()).length, 250);
  assert.equal((await ids({ limit: 120 })).length, 120);
  assert.deepEqual(await ids({ where: "doc.n > params.m", params: { m: 246 }, orderBy: [{ path: "/n", desc: true }] }), ["d249", "d248", "d247"]);
  assert.deepEqual(await ids({ idPrefix: "d00", orderBy: ["/n"], limit: 2 }), ["d000", "d001"]);
  assert.deepEqual(await ids({ due: { until: new Date(3000) } }), ["d000", "d001"]);
  assert.deepEqual(await ids({ due: { from: 249, until: "1h" } }), ["d248", "d249"]);
  assert.deepEqual(await ids({ held: true }), []);
  const [item] = await all(c.query({ select: ["/n"], limit: 1 }));
  assert.deepEqual(item, { id: "d000", value: { id: "d000", n: 0 }, etag: item?.etag, seq: item?.seq, modified: new Date(0), deadline: new Date(1000), rule: "document", held: false });
  assert.deepEqual((await all(c.query().pages())).map((p) => [p.items.length, typeof p.cursor]), [[100, "string"], [100, "string"], [50, "undefined"]]);
  const [first] = await all(c.query({ limit: 10 }).pages());
  assert.deepEqual(await ids({ cursor: first?.cursor, limit: 1 }), ["d010"]);
  assert.equal(await c.count({ where: "doc.n < 10" }), 10);
  await refused(all(c.query({ limit: 0 })), 400, "bad_request");
  await refused(all(c.query({ where: "doc.n >" })), 400, "bad_query");
});

test("history over several pages", async () => {
  await using db = await server.open({ at: new Date(0) });
  await db.createCollection("c", { defaultTtl: 100 });
  const c = db.collection("c");
  await c.batch(Array.from({ length: 120 }, (_, n) => ({ op: "upsert" as const, id: "a", value: { n } })));
  await db.advance("due");
  const events = await all(c.history("a"));
  assert.deepEqual(events.map((e) => e.type), ["DocumentExpired", ...Array(119).fill("DocumentReplaced"), "DocumentCreated"]);
  const { seq, previous } = events[0]!;
  assert.deepEqual(events[0], {
    seq, time: new Date(100_000), type: "DocumentExpired", collection: "c", id: "a", previous, deadline: new Date(100_000), ttl: 100, rule: "collection", value: { id: "a", n: 119 },
  });
  assert.deepEqual((await all(c.history("a", { limit: 2 }))).map((e) => e.seq), [seq, Number(previous)]);
  await refused(all(c.history("a", { limit: 0 })), 400, "bad_request");
  await refused(all(c.history("b")), 404, "document_not_found");
});

test("a forecast", async () => {
  await using db = await server.open({ at: new Date(0) });
  await db.createCollection("c", { defaultTtl: 3600 });
  await db.collection("c").create("a", {});
  const forecast = await db.collection("c").forecast({ next: "2h", bucket: "1h", defaultTtl: "30m" });
  assert.deepEqual([forecast.now, forecast.defaultTtl, forecast.whatIf, forecast.due], [0, 1800, true, 1]);
  assert.deepEqual(forecast.buckets[0], { from: 0, until: 3600, due: 1 });
  assert.equal((await db.collection("c").forecast({ defaultTtl: "never" })).never, 1);
});

test("integers beyond 2^53 come back as they were sent", async () => {
  await using db = await server.open({ parse: parseBigInt });
  await db.createCollection("c");
  const c = db.collection("c");
  const value = { id: "a", big: 2n ** 63n, near: 9007199254740991, list: [-(2n ** 60n)], text: "12345678901234567890", float: 1.2345678901234567 };
  assert.deepEqual((await c.upsert("a", value)).value, value);
  const { value: read } = (await c.get("a"))!;
  assert.deepEqual((await c.replace("a", read)).value, value);
  assert.deepEqual((await all(c.query({ where: "doc.id == params.x", params: { x: "a" } })))[0]?.value, value);
});

test("ids and names that can't be are refused", async () => {
  await using db = await server.open();
  await db.createCollection("c");
  const c = db.collection("c");
  for (const id of ["", "a\n", "x".repeat(256), "\ud800"]) {
    await refused(c.get(id), 400, "bad_id");
  }
  for (const id of ["a.b *>%", "ä€😀", "\ufeffx", "x".repeat(255)]) {
    assert.equal((await c.upsert(id, {})).id, id);
    assert.equal((await c.get(id))?.id, id);
  }
  assert.throws(() => db.collection("a.b"), { code: 400, error: "bad_request" });
  const nc = await server.connect();
  assert.throws(() => new Lapse(nc, { database: "No" }), { code: 400, error: "bad_request" });
  assert.throws(() => new Lapse(nc, { timeout: 0 }), RangeError);
  await refused(new Lapse(nc, { database: "nobody" }).status(), 503, "unavailable", true);
  await nc.close();
  await refused(new Lapse(nc).status(), 503, "unavailable", true);
});

async function all<R>(of: AsyncIterable<R>): Promise<R[]> {
  const out: R[] = [];
  for await (const r of of) {
    out.push(r);
  }
  return out;
}
