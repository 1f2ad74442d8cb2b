import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

const sdk = fileURLToPath(new URL("../../", import.meta.url));
const shell = process.platform === "win32"; // npm is a script there

const program = `
import { connect } from "@nats-io/transport-node";
import { Lapse, LapseError, parseBigInt, type Event, type Item, type WriteOptions } from "@lapsedb/lapse";
import { startLapse } from "@lapsedb/lapse/test";

interface Session { user: string; n?: number }
await using server = await startLapse({ at: new Date("2026-01-01T00:00:00Z") });
await using db = await server.open();
await db.createCollection("sessions", { defaultTtl: "30m", warnBefore: 60 });
const sessions = db.collection<Session>("sessions");
const options: WriteOptions = { ttl: "never", msgId: "m" };
const item: Item<Session> = await sessions.upsert("a", { user: "x" }, options);
await sessions.patch("a", { n: 1 }, { ttl: "1m" });
for await (const { value, deadline } of sessions.query({ where: "doc.n > 0" })) {
  console.log(value.user.toUpperCase(), deadline?.toISOString());
}
const { now, events } = await db.advance("due");
for await (const event of sessions.history("a", { limit: 1 })) {
  const e: Event<Session> = event;
  console.log(e.type, now.toISOString(), events, item.value.user);
}
const nc = await connect({ servers: server.url });
const err: unknown = await new Lapse(nc, { parse: parseBigInt, timeout: "5s" }).getCollection("none").catch((e: unknown) => e);
console.log(err instanceof LapseError && err.error);
await nc.close();
`;

test("the packed package works in an empty project with tsc --strict", () => {
  const project = mkdtempSync(join(tmpdir(), "lapse-"));
  try {
    const run = (command: string, ...args: string[]) => execFileSync(command, args, { cwd: project, encoding: "utf8", shell });
    rmSync(join(sdk, "dist"), { recursive: true, force: true }); // so that pack has to build it
    const [{ filename }] = JSON.parse(run("npm", "pack", sdk, "--json", "--loglevel=error").replace(/^[^[]*/, ""));
    assert(statSync(join(project, filename)).size <= 60_000);
    // What the package needs comes from here, without the network.
    const here = ["nats-core", "jetstream", "transport-node"].map((name) => [`@nats-io/${name}`, `file:${join(sdk, "node_modules/@nats-io", name)}`]);
    const dependencies = { "@lapsedb/lapse": `file:${filename}`, ...Object.fromEntries(here) };
    writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", dependencies }));
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--loglevel=error");
    writeFileSync(join(project, "program.ts"), program);
    run(process.execPath, join(sdk, "node_modules/typescript/bin/tsc"), "--strict", "--module", "nodenext", "--target", "es2022", "program.ts");
    assert.deepEqual(run(process.execPath, "program.js").trim().split("\n"), ["X 2026-01-01T00:01:00.000Z", "DocumentExpired 2026-01-01T00:01:00.000Z 1 x", "collection_not_found"]);
  } finally {
    rmSync(project, { recursive: true });
  }
});
