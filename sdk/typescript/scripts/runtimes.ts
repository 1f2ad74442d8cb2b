// Runs a program with the packed package in Deno and Bun, and a test in vitest. All three come from npm.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const program = `
import { connect } from "@nats-io/transport-node";
import { Lapse } from "@lapsedb/lapse";
import { startLapse } from "@lapsedb/lapse/test";

const server = await startLapse();
const lapse = await server.open();
await lapse.createCollection("sessions", { defaultTtl: "30m" });
await lapse.collection("sessions").create("a", { user: "ann" });
const nc = await connect({ servers: server.url });
const own = new Lapse(nc, { database: lapse.database });
console.log((await own.collection("sessions").get("a")).value.user);
await lapse.advance("30m");
for (const durable of [undefined, "mailer"]) {
  for await (const event of own.expirations({ durable, from: "start" })) {
    console.log(event.id, event.value.user);
    break;
  }
}
await nc.close();
await server.stop();
`;

const example = `
import { afterAll, beforeAll, expect, test } from "vitest";
import { startLapse } from "@lapsedb/lapse/test";

let server;
beforeAll(async () => { server = await startLapse(); });
afterAll(() => server.stop());

test("a session ends after half an hour", async () => {
  const lapse = await server.open();
  await lapse.createCollection("sessions", { defaultTtl: "30m" });
  await lapse.collection("sessions").create("a", {});
  await lapse.advance("30m");
  expect(await lapse.collection("sessions").get("a")).toBeNull();
  await lapse.drop();
});
`;

const versions = { deno: "2.9.6", bun: "1.4.5", vitest: "4.1.12", "@nats-io/transport-node": "3.4.0" };
const sdk = fileURLToPath(new URL("../../", import.meta.url));
const project = mkdtempSync(join(tmpdir(), "lapse-"));

function run(command: string, ...args: string[]): string {
  return execFileSync(command, args, { cwd: project, encoding: "utf8", timeout: 300_000, stdio: ["ignore", "pipe", "inherit"] });
}

/** Installs the packed package and the runtimes; reports whether npm could. */
function install(): boolean {
  const [{ filename }] = JSON.parse(run("npm", "pack", sdk, "--json", "--loglevel=error").replace(/^[^[]*/, ""));
  writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", dependencies: { "@lapsedb/lapse": `file:${filename}`, ...versions } }));
  try {
    run("npm", "install", "--no-audit", "--no-fund", "--loglevel=error");
    return true;
  } catch {
    return false;
  }
}

try {
  if (install()) {
    writeFileSync(join(project, "program.js"), program);
    for (const [name, ...args] of [["deno", "run", "--allow-all"], ["bun", "run"]] as const) {
      assert.equal(run(join(project, "node_modules/.bin", name), ...args, "program.js"), "ann\na ann\na ann\n", name);
      console.log(`${name} ${versions[name]} runs the package`);
    }
    writeFileSync(join(project, "example.test.js"), example);
    assert.match(run(join(project, "node_modules/.bin/vitest"), "run", "--no-color"), /Tests +1 passed/);
    console.log(`vitest ${versions.vitest} runs a test`);
  } else {
    console.log("LEFT OUT: Deno, Bun and vitest, npm cannot install them");
  }
} finally {
  rmSync(project, { recursive: true });
}
