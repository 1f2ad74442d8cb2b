import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { context, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor, type ReadableSpan } from "@opentelemetry/sdk-trace-base";
import { headers } from "@nats-io/nats-core";
import { LapseError } from "../src/index.js";
import { contextOf, otel } from "../src/otel.js";
import { startLapse, type Server, type TestDatabase } from "../src/test.js";

const memory = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(memory)] });
const tracer = provider.getTracer("shop");
const start = new Date("2000-01-01T00:00:00Z");
let server: Server;

before(async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  server = await startLapse();
});

after(async () => {
  context.disable();
  await server.stop();
});

/** Runs body in a span of the program. */
async function inSpan<R>(name: string, body: () => Promise<R>): Promise<R> {
  const span = tracer.startSpan(name);
  return context.with(trace.setSpan(context.active(), span), body).finally(() => span.end());
}

/** Returns the ended spans of a name. */
function find(name: string, n: number): ReadableSpan[] {
  const found = memory.getFinishedSpans().filter((s) => s.name === name);
  assert.equal(found.length, n, `${name} among ${memory.getFinishedSpans().map((s) => s.name)}`);
  return found;
}

async function open(): Promise<TestDatabase> {
  const lapse = await server.open({ at: start, tracer: otel(provider) });
  await lapse.createCollection("sessions", { defaultTtl: "30d", warnBefore: "1d" });
  memory.reset();
  return lapse;
}

test("thirty days after a request, the handler of the expiry links to it", async () => {
  await using lapse = await open();
  await inSpan("POST /login", () => lapse.collection("sessions").upsert("a", { user: "ann" }));
  await lapse.advance("30d");
  for await (const event of lapse.expirations({ from: "start" })) {
    assert.equal(event.traceparent, undefined);
    await context.with(contextOf(event), () => inSpan("mail goodbye", async () => undefined));
    break;
  }
  const [login, call] = [find("POST /login", 1)[0]!, find("document.upsert sessions", 1)[0]!];
  const [handled, mail] = [find(`process lapse.${lapse.database}.events.sessions.DocumentExpired`, 1)[0]!, find("mail goodbye", 1)[0]!];
  assert.equal(call.parentSpanContext?.spanId, login.spanContext().spanId);
  assert.deepEqual([call.kind, handled.kind], [SpanKind.CLIENT, SpanKind.CONSUMER]);
  assert.deepEqual(call.attributes, { "db.system.name": "lapse", "db.namespace": lapse.database, "db.operation.name": "document.upsert", "db.collection.name": "sessions" });
  assert.equal(handled.parentSpanContext, undefined);
  assert.deepEqual(handled.links.map(({ context: c }) => [c.traceId, c.spanId, c.traceFlags]), [[call.spanContext().traceId, call.spanContext().spanId, 1]]);
  assert.equal(mail.parentSpanContext?.spanId, handled.spanContext().spanId);
});

test("each try of a handler has a span, and the log is read once", async () => {
  await using lapse = await open();
  await inSpan("POST /login", () => lapse.collection("sessions").upsert("a", {}));
  await lapse.advance("30d");
  const nc = lapse.requests.nc;
  let reads = 0;
  const { request } = nc;
  nc.request = (subject, ...rest) => {
    reads += Number(subject.startsWith("$JS.API.STREAM.MSG.GET.") && String(rest[0]).includes(".sessions.>"));
    return request.call(nc, subject, ...rest);
  };
  let tries = 0;
  await lapse.handle(
    async (event) => {
      await inSpan("work", async () => undefined);
      if (event.type === "DocumentExpired" && ++tries === 1) {
        throw new TypeError("not yet");
      }
    },
    { durable: "d", from: "start", until: "now", types: ["DocumentExpiring", "DocumentExpired"] },
  );
  nc.request = request;
  const write = find("document.upsert sessions", 1)[0]!.spanContext();
  const spans = [...find(`process lapse.${lapse.database}.events.sessions.DocumentExpiring`, 1), ...find(`process lapse.${lapse.database}.events.sessions.DocumentExpired`, 2)];
  assert.deepEqual(spans.map((s) => s.links.map((l) => l.context.spanId)), [[write.spanId], [write.spanId], [write.spanId]]);
  assert.deepEqual(spans.map((s) => s.status.code), [SpanStatusCode.UNSET, SpanStatusCode.ERROR, SpanStatusCode.UNSET]);
  assert.equal(spans[1]!.attributes["error.type"], "TypeError");
  assert.deepEqual(find("work", 3).map((s) => s.parentSpanContext?.spanId), spans.map((s) => s.spanContext().spanId));
  assert.equal(reads, 1);
});

test("a refused call has its code, other events link to their own write, and without one there is no link", async () => {
  await using lapse = await open();
  const sessions = lapse.collection("sessions");
  await assert.rejects(() => sessions.replace("none", {}), LapseError);
  const { status, attributes } = find("document.replace sessions", 1)[0]!;
  assert.deepEqual([status.code, status.message, attributes["error.type"], attributes["db.response.status_code"]], [SpanStatusCode.ERROR, "document_not_found", "document_not_found", "404"]);
  await lapse.status();
  assert.equal(find("status", 1)[0]!.attributes["db.collection.name"], undefined);
  await sessions.upsert("a", {});
  await lapse.requests.nc.request(`lapse.${lapse.database}.api.document.touch.sessions.a`);
  for await (const _ of lapse.changes({ from: "start", until: "now" }));
  const links = (type: string) => find(`process lapse.${lapse.database}.events.sessions.${type}`, 1)[0]!.links.map((l) => l.context.spanId);
  assert.deepEqual(links("DocumentCreated"), [find("document.upsert sessions", 1)[0]!.spanContext().spanId]);
  assert.deepEqual(links("DocumentTouched"), []);
});

test("events have the trace contexts that schema/vectors says", async () => {
  await using lapse = await server.open();
  await lapse.createCollection("c");
  const vectors: { name: string; headers: [string, string][]; traceparent: string | null }[] = JSON.parse(readFileSync(new URL("../../../../schema/vectors/pure/traces.json", import.meta.url), "utf8"));
  for (const v of vectors) {
    const sent = headers();
    v.headers.forEach(([name, value]) => sent.append(name, value));
    await lapse.requests.nc.request(`lapse.${lapse.database}.api.document.upsert.c.a`, "{}", { timeout: 10_000, headers: sent });
  }
  const got: (string | null)[] = [];
  for await (const event of lapse.changes({ from: "start", until: "now", types: ["DocumentCreated", "DocumentReplaced"] })) {
    got.push(event.traceparent ?? null);
  }
  assert.deepEqual(got, vectors.map((v) => v.traceparent));
});
