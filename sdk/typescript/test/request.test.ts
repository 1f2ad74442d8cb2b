import assert from "node:assert/strict";
import { test } from "node:test";
import { createServer, connect as dial, type AddressInfo, type Socket } from "node:net";
import { connect } from "@nats-io/transport-node";
import { Lapse, LapseError } from "../src/index.js";
import { Log } from "../src/log.js";
import { startLapse } from "../src/test.js";
import { StandIn, type Answer } from "./standin.js";

const ok: Answer = { headers: { "Lapse-Status": "200", "Lapse-Seq": "7" }, body: '{"id":"a","_ts":1,"_etag":"7"}' };
const unavailable: Answer = { headers: { "Lapse-Status": "503", "Lapse-Seq": "7" }, body: '{"code":503,"error":"unavailable","message":"no writer"}' };

async function refused(call: Promise<unknown>): Promise<LapseError> {
  const err: unknown = await call.then(() => assert.fail("it succeeded"), (e: unknown) => e);
  assert(err instanceof LapseError, String(err));
  return err;
}

test("a write is sent again under one id until it is answered", async () => {
  const nc = new StandIn((_, n) => (["TimeoutError", "NoResponders", unavailable] as const)[n - 1] ?? ok);
  assert.equal((await nc.lapse().collection("c").upsert("a", { n: 1 })).etag, "7");
  assert.equal(nc.sent.length, 4);
  assert.notEqual(nc.sent[0]!.headers["Nats-Msg-Id"], undefined);
  nc.sent.forEach((sent) => assert.deepEqual(sent, nc.sent[0]));
  await nc.lapse().collection("c").upsert("a", { n: 1 });
  assert.notEqual(nc.sent[4]!.headers["Nats-Msg-Id"], nc.sent[0]!.headers["Nats-Msg-Id"]);
});

test("a write that is refused after a lost reply is refused", async () => {
  const nc = new StandIn((_, n) => (n === 1 ? "TimeoutError" : { headers: { "Lapse-Status": "412", "Lapse-Seq": "7" }, body: '{"code":412,"error":"precondition_failed","message":"m"}' }));
  const err = await refused(nc.lapse().collection("c").delete("a", { ifMatch: "3", msgId: "mine" }));
  assert.deepEqual([err.code, err.error, err.message, err.retryable], [412, "precondition_failed", "m", false]);
  assert.deepEqual(nc.sent[1]!.headers, { "If-Match": "3", "Nats-Msg-Id": "mine" });
});

test("a write without an answer is a 504 at its time-out", async () => {
  for (const answers of [["TimeoutError"], ["TimeoutError", "NoResponders"], ["TimeoutError", unavailable]]) {
    const nc = new StandIn((_, n) => answers[Math.min(n, answers.length) - 1] as Answer);
    const err = await refused(nc.lapse({ timeout: 0.25 }).collection("c").upsert("a", {}));
    assert.deepEqual([err.code, err.error, err.retryable], [504, "timeout", true]);
    assert.match(err.message, /may have been applied/);
    assert(nc.sent.length > 1);
  }
});

test("nothing is sent again that no process received or that is refused", async () => {
  for (const [answer, code, error] of [["NoResponders", 503, "unavailable"], [unavailable, 503, "unavailable"], ["InvalidArgumentError", 413, "too_large"]] as [Answer, number, string][]) {
    const nc = new StandIn(() => answer);
    const err = await refused(nc.lapse().collection("c").upsert("a", {}));
    assert.deepEqual([err.code, err.error, err.retryable], [code, error, code === 503]);
    assert.equal(nc.sent.length, 1);
  }
});

test("a batch whose answer is a time-out may have been applied", async () => {
  const nc = new StandIn(() => ({ headers: { "Lapse-Status": "504", "Lapse-Seq": "7" }, body: '{"code":504,"error":"timeout","message":"m"}' }));
  const err = await refused(nc.lapse().collection("c").batch([{ op: "get", id: "a" }]));
  assert.deepEqual([err.code, err.error, err.retryable, nc.sent.length], [504, "timeout", false, 1]);
});

test("a batch whose reply is lost may have been applied, and is not sent again", async () => {
  for (const cut of [false, true]) {
    const nc = new StandIn(() => (cut ? void nc.tell("disconnect") : "TimeoutError"));
    const err = await refused(nc.lapse().collection("c").batch([{ op: "get", id: "a" }]));
    assert.deepEqual([err.code, err.error, err.retryable], [504, "timeout", false]);
    assert.match(err.message, /may have been applied/);
    assert.equal(nc.sent.length, 1);
    assert.equal(nc.sent[0]!.headers["Nats-Msg-Id"], undefined);
  }
});

test("requests wait for a connection that is away, and are sent again when it is back", async () => {
  for (const kind of ["get", "delete"] as const) {
    const nc = new StandIn((_, n) => {
      if (n === 1) {
        nc.tell("disconnect");
        setImmediate(() => nc.tell("reconnect"));
        return undefined;
      }
      return ok;
    });
    await nc.lapse().collection("c")[kind]("a");
    assert.equal(nc.sent.length, 2);
    assert.deepEqual(nc.sent[0], nc.sent[1]);
  }
});

test("a connection that stays away is a 504", async () => {
  const nc = new StandIn(() => ok);
  nc.info = undefined;
  const err = await refused(nc.lapse({ timeout: 0.05 }).collection("c").batch([]));
  assert.deepEqual([err.code, err.retryable, nc.sent.length], [504, true, 0]);
});

test("a call that waited for the connection waits for a process too, but for a batch", async () => {
  const late = () => new StandIn((_, n) => (["NoResponders", unavailable] as const)[n - 1] ?? ok);
  const absent = () => new StandIn(() => "NoResponders");
  const wait = async (nc: StandIn, kind: "get" | "delete" | "batch", timeout = 10) => {
    nc.info = undefined;
    const c = nc.lapse({ timeout }).collection("c");
    const call = kind === "batch" ? c.batch([]) : c[kind]("a");
    nc.tell("reconnect");
    await call;
  };
  for (const [nc, kind] of [[late(), "get"], [late(), "delete"]] as const) {
    await wait(nc, kind);
    assert.equal(nc.sent.length, 3);
  }
  for (const [nc, kind, timeout] of [[absent(), "delete", 0.5], [absent(), "batch", 10]] as const) {
    const err = await refused(wait(nc, kind, timeout));
    assert.deepEqual([err.code, err.error, err.retryable, nc.sent.length > 1], [503, "unavailable", true, kind !== "batch"]);
  }
});

test("a request to JetStream that waited for the connection waits for JetStream, and for nothing else", async () => {
  const answers = [{ code: 503, err_code: 10008 }, { code: 404, err_code: 10014 }];
  const nc = new StandIn((_, n) => ({ headers: {}, body: JSON.stringify({ error: answers[n - 1] }) }));
  nc.info = undefined;
  const consumer = new Log(nc.lapse().requests, undefined).consumer("d");
  nc.tell("reconnect");
  assert.equal(await consumer, undefined);
  assert.equal(nc.sent.length, 2);
});

test("a closed connection ends a write that is sent again", async () => {
  const nc = new StandIn(() => {
    nc.closed = true;
    nc.tell("close");
    return nc.sent.length === 1 ? undefined : "ClosedConnectionError";
  });
  const err = await refused(nc.lapse().collection("c").upsert("a", {}));
  assert.deepEqual([err.code, nc.sent.length], [504, 1]);
  assert.equal((await refused(nc.lapse().status())).code, 503);
});

test("an aborted call throws the reason", async () => {
  const nc = new StandIn(() => undefined);
  const end = new AbortController();
  const call = nc.lapse().collection("c").get("a", { signal: end.signal });
  await new Promise(setImmediate);
  const reason = new Error("enough");
  end.abort(reason);
  await assert.rejects(call, reason);
  await assert.rejects(nc.lapse().collection("c").upsert("a", {}, { signal: end.signal }), reason);
  assert.equal(nc.sent.length, 1);
});

test("reads include the earlier replies with readYourWrites, or what minSeq says", async () => {
  const nc = new StandIn(() => ok);
  const plain = nc.lapse().collection("c");
  await plain.upsert("a", {});
  await plain.get("a");
  await plain.get("a", { minSeq: 9 });
  const session = nc.lapse({ readYourWrites: true }).collection("c");
  await session.get("a");
  await session.get("a");
  await session.get("a", { minSeq: 9 });
  await session.get("a", { minSeq: 3 });
  assert.deepEqual(nc.sent.slice(1).map((s) => s.headers["Lapse-Min-Seq"]), [undefined, "9", undefined, "7", "9", "7"]);
});

test("what may exceed max_payload waits until NATS has told it", async () => {
  const nc = new StandIn(() => ok);
  const c = nc.lapse().collection("c");
  await c.upsert("a", {});
  await c.upsert("a", { text: "x".repeat(2000) });
  await c.upsert("a", { text: "x".repeat(2000) });
  nc.tell("reconnect");
  await new Promise(setImmediate);
  await c.upsert("a", { text: "x".repeat(2000) });
  assert.deepEqual(nc.flushes, [1, 3]);
});

test("a page for which the server would scan too much is asked for in smaller ones", async () => {
  const limits: number[] = [];
  const nc = new StandIn(({ body }) => {
    const { limit } = JSON.parse(body);
    limits.push(limit);
    if (limit > 30) {
      return { headers: { "Lapse-Status": "413", "Lapse-Seq": "7" }, body: '{"code":413,"error":"too_large","message":"m"}' };
    }
    const cursor = limits.length < 12 ? "next" : undefined;
    return { headers: { "Lapse-Status": "200", "Lapse-Seq": "7" }, body: JSON.stringify({ documents: [{ id: "a", _ts: 1, _etag: "7", _deadline: null }], cursor }) };
  });
  let items = 0;
  for await (const { value } of nc.lapse().collection("c").query()) {
    assert.deepEqual(value, { id: "a" });
    items++;
  }
  assert.deepEqual(limits, [100, 50, 25, 25, 25, 25, 50, 25, 25, 25, 25, 50, 25]);
  assert.equal(items, 9);
  const tooLarge = new StandIn(() => ({ headers: { "Lapse-Status": "413", "Lapse-Seq": "7" }, body: '{"code":413,"error":"too_large","message":"m"}' }));
  assert.equal((await refused(tooLarge.lapse().collection("c").query({ limit: 2 })[Symbol.asyncIterator]().next())).code, 413);
  assert.equal(tooLarge.sent.length, 2);
});

test("a reply that is not from lapse is an error", async () => {
  const strange = await refused(new StandIn(() => ({ headers: {} })).lapse().status());
  assert.deepEqual([strange.code, strange.error], [504, "timeout"]);
  const framework = await refused(new StandIn(() => ({ headers: { "Nats-Service-Error-Code": "500", "Nats-Service-Error": "panic" } })).lapse().status());
  assert.deepEqual([framework.code, framework.error, framework.message, framework.retryable], [500, "unavailable", "panic", false]);
});

test("a write whose connection is cut is applied once", async () => {
  await using server = await startLapse();
  await using db = await server.open();
  await db.createCollection("c");
  const target = Number(new URL(server.url).port);
  let cut = false;
  const sockets = new Set<Socket>();
  const proxy = createServer((client) => {
    const upstream = dial(target, "127.0.0.1");
    sockets.add(client.on("error", () => {})).add(upstream.on("error", () => {}));
    client.pipe(upstream);
    upstream.on("data", (data) => {
      if (cut && data.includes("Lapse-Status")) { // the reply is lost
        cut = false;
        client.destroy();
        upstream.destroy();
        return;
      }
      client.write(data);
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const nc = await connect({ servers: `127.0.0.1:${(proxy.address() as AddressInfo).port}`, reconnectTimeWait: 10, maxReconnectAttempts: -1 });
  const c = new Lapse(nc, { database: db.database }).collection("c");
  cut = true;
  const item = await c.create("a", { n: 1 });
  assert.equal(cut, false);
  assert.equal(item.etag, (await c.get("a"))?.etag);
  cut = true;
  assert.equal((await c.get("a"))?.etag, item.etag);
  cut = true;
  const err = await refused(c.batch([{ op: "delete", id: "a" }]));
  assert.deepEqual([err.code, err.retryable], [504, false]);
  assert.equal(await c.get("a"), null);
  await nc.close();
  sockets.forEach((s) => s.destroy());
  proxy.close();
});
