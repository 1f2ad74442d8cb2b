// One durable, read in turns by Go and TypeScript, while processes, connections and the server end.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connect } from "@nats-io/transport-node";
import { Lapse } from "../src/index.js";
import { environment as env, freePort, kill, Proxy, serve } from "./process.js";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

test("one durable is read by Go and TypeScript in turns", async (t) => {
  if (spawnSync("go", ["version"]).error) {
    t.skip("LEFT OUT: it needs go");
    return;
  }
  const directory = mkdtempSync(join(tmpdir(), "lapse-turns-"));
  const go = join(directory, "reader");
  execFileSync("go", ["build", "-o", go, "."], { cwd: path("../../test/testdata/reader"), stdio: "inherit" });
  const file = join(directory, "events");
  writeFileSync(file, "");
  const port = await freePort();
  const store = join(directory, "store");
  let server = await serve(port, "--store-dir", store);
  const proxy = new Proxy(port);
  await proxy.listen();
  const readers: ChildProcess[] = [];
  t.after(async () => {
    await Promise.all([...readers, server].map(kill));
    proxy.close();
    rmSync(directory, { recursive: true, force: true, maxRetries: 3 });
  });

  // Writes without an end, over a connection of its own: it goes on when the server is back.
  const nc = await connect({ servers: `127.0.0.1:${port}`, maxReconnectAttempts: -1, reconnectTimeWait: 100 });
  const db = new Lapse(nc, { timeout: "1m" });
  await db.createCollection("c");
  let writing = true;
  const writer = (async () => {
    for (let i = 0; writing; i++) {
      await db.collection("c").upsert(String(i % 10), { i });
      await sleep(2);
    }
  })();

  const lines = () => readFileSync(file, "utf8").split("\n").slice(0, -1);
  const more = async (n: number) => {
    const want = lines().length + n;
    while (lines().length < want) {
      await sleep(20);
    }
  };
  const start = (language: "go" | "typescript", ...end: string[]) => {
    const [command, ...args] = language === "go" ? [go] : [process.execPath, path("reader.js")];
    const reader = spawn(command!, [...args, `nats://127.0.0.1:${proxy.port}`, "main", "turns", file, ...end], { env, stdio: ["ignore", "inherit", "inherit"] });
    readers.push(reader);
    return reader;
  };

  for (const language of ["go", "typescript", "go", "typescript"] as const) {
    const reader = start(language);
    await more(30);
    await kill(reader);
  }
  let both = [start("typescript"), start("go")]; // one reads, the other waits
  await more(30);
  proxy.cut();
  await more(30);
  await kill(server);
  server = await serve(port, "--store-dir", store);
  await more(30);
  for (const language of ["typescript", "go"] as const) {
    proxy.cut();
    await kill(both.shift()!);
    both.push(start(language));
    await more(30);
  }
  writing = false;
  await writer;
  const all: number[] = [];
  for await (const e of db.changes({ from: "start", types: ["DocumentReplaced"], until: "now" })) {
    all.push(e.seq);
  }
  await nc.close();
  await Promise.all(both.map(kill));
  assert.deepEqual(await once(start("typescript", "end"), "exit"), [0, null]);

  const handled = lines();
  assert.equal(handled.pop(), "end");
  const firsts = [...new Set(handled.map(Number))];
  assert.deepEqual(firsts, all, "each event is handled, and for the first time after all before it");
  t.diagnostic(`${all.length} events, ${handled.length - all.length} repeats`);
});
