import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { startLapse } from "../src/test.js";

/** Waits until nobody listens at a URL. */
async function closed(url: string): Promise<void> {
  const { hostname, port } = new URL(url);
  for (;;) {
    const socket = connect(Number(port), hostname);
    const refused = await new Promise<boolean>((resolve) => {
      socket.on("error", () => resolve(true)).on("connect", () => socket.destroy()).on("close", () => resolve(false));
    });
    if (refused) {
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("the server ends when the test process is killed", async () => {
  const kit = new URL("../src/test.js", import.meta.url).href;
  for (const end of ["process.kill(process.pid, 'SIGKILL')", "process.exit(3)", "throw new Error('as wanted')", ""]) {
    const script = `import { startLapse } from "${kit}"; const server = await startLapse(); console.log(server.url); ${end}`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["ignore", "pipe", "ignore"] });
    const gone = new Promise((resolve) => child.once("exit", resolve));
    const url = await new Promise<string>((resolve) => createInterface(child.stdout).once("line", resolve));
    await gone; // also without an end, since a running server does not keep its process
    await closed(url);
  }
});

test("stop ends the server, and may be repeated", async () => {
  const server = await startLapse();
  const nc = await server.connect();
  await server.stop();
  assert.equal(nc.isClosed(), true);
  await closed(server.url);
  await server.stop();
});

test("a server that cannot start is an error that says why", async () => {
  await assert.rejects(startLapse({ binary: "/nowhere/lapse" }), /cannot start \/nowhere\/lapse .*LAPSE_BINARY.*ENOENT/s);
  await assert.rejects(startLapse({ args: ["--store-dir", "x"] }), /store-dir/);
});

test("the server gets its flags, and no LAPSE_… of the environment", async () => {
  const directory = mkdtempSync(join(tmpdir(), "lapse-"));
  const binary = join(directory, "lapse"); // reports how it was started
  const ready = '{ event: "ready", nats: process.argv.slice(2).join(" "), cosmos: Object.keys(process.env).filter((name) => /lapse/i.test(name)).join() }';
  writeFileSync(binary, `#!${process.execPath}\nconsole.log(JSON.stringify(${ready})); setInterval(() => {}, 1000);`, { mode: 0o755 });
  process.env["LAPSE_HEALTH_SOCKET"] = "x";
  try {
    await using server = await startLapse({ binary, at: new Date(0), load: "f", cosmos: "http://127.0.0.1:0", args: ["--health-socket", "y"] });
    assert.equal(server.url, "test --listen 127.0.0.1:0 --at 1970-01-01T00:00:00.000Z --load f --cosmos http://127.0.0.1:0 --health-socket y");
    assert.equal(server.cosmos, "");
  } finally {
    delete process.env["LAPSE_HEALTH_SOCKET"];
    rmSync(directory, { recursive: true });
  }
});

test("clocks begin where at says, or at the end of a loaded log", async () => {
  {
    await using server = await startLapse({ at: new Date("2026-01-01T00:00:00.500Z") });
    await using db = await server.open();
    assert.deepEqual(await db.now(), new Date("2026-01-01T00:00:00.500Z"));
    await using other = await server.open({ at: new Date(0) });
    assert.deepEqual(await other.now(), new Date(0));
    assert.deepEqual((await other.advance(new Date(90_000))).now, new Date(90_000));
    assert.deepEqual(await db.now(), new Date("2026-01-01T00:00:00.500Z"));
  }
  {
    const before = Date.now();
    await using server = await startLapse({ at: "now" });
    await using db = await server.open();
    assert((await db.now()).getTime() >= before);
  }
  const directory = mkdtempSync(join(tmpdir(), "lapse-"));
  try {
    const log = join(directory, "log.jsonl");
    writeFileSync(log, '{"seq":1,"time":"2015-05-17T10:05:03.000Z","type":"CollectionCreated","collection":"c","body":{"defaultTtl":null,"indexingPolicy":{"indexingMode":"consistent","includedPaths":[]},"previousImages":true}}\n');
    await using server = await startLapse({ load: log });
    await using db = await server.open();
    assert.deepEqual(await db.now(), new Date("2015-05-17T10:05:03.000Z"));
  } finally {
    rmSync(directory, { recursive: true });
  }
});
