import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { startLapse } from "../src/test.js";

const sdk = fileURLToPath(new URL("../../", import.meta.url));
const tsc = join(sdk, "node_modules/typescript/bin/tsc");
const strict = ["--strict", "--module", "nodenext", "--target", "es2022"];
const shell = process.platform === "win32"; // npm is a script there

/** Returns the blocks of a language on a page of the manual. */
function blocks(page: string, language: string): string[] {
  const text = readFileSync(new URL(`../../../../docs/${page}.md`, import.meta.url), "utf8");
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms"))].map(([, block]) => block!);
}

/** What browsers do with the application of the manual's page about sessions, which comes before. */
const shop = `
import assert from "node:assert/strict";
import { once } from "node:events";

await lapse.replaceCollection("sessions", { defaultTtl: "1d", indexingPolicy: { includedPaths: [{ path: "/user" }] } });
app.post("/login/:user", (req, res) => {
  req.session.user = req.params.user;
  res.end();
});
app.get("/", (req, res) => res.json([req.session.user, req.session.cart]));
const server = app.listen(0, "127.0.0.1");
await once(server, "listening");
async function send(method, path, cookie = "") {
  const response = await fetch(\`http://127.0.0.1:\${server.address().port}\${path}\`, { method, headers: { cookie, "x-forwarded-proto": "https" } });
  return { status: response.status, text: await response.text(), cookie: response.headers.getSetCookie()[0]?.split(";")[0] };
}
const [ann, bob] = [await send("POST", "/login/ann"), await send("POST", "/login/bob")];
assert.equal((await send("POST", "/cart/tea", ann.cookie)).status, 204);
assert.equal((await send("GET", "/", ann.cookie)).text, '["ann",["tea"]]');
const results = await Promise.all(["a", "b"].map((item) => send("POST", "/cart/" + item, bob.cookie)));
assert.deepEqual(results.map(({ status }) => status).filter((status) => status !== 204 && status !== 412), []);
assert.equal((await send("POST", "/logout-everywhere", ann.cookie)).status, 204);
assert.equal((await send("GET", "/", ann.cookie)).text, "[null,null]");
assert.match((await send("GET", "/", bob.cookie)).text, /bob/);
process.exit();
`;

/** Uses types of the client and the test kit that the manual leaves out. */
const types = `
import { Lapse, LapseError, parseBigInt, type Event, type Item, type Operation, type Properties, type Result, type WriteOptions } from "@lapsedb/lapse";
import { startLapse, type Server, type TestDatabase } from "@lapsedb/lapse/test";

export async function use(nc: ConstructorParameters<typeof Lapse>[0]): Promise<void> {
  const lapse = new Lapse(nc, { parse: parseBigInt, timeout: "5s", readYourWrites: true });
  const properties: Properties = { defaultTtl: "never", warnBefore: 60, metadata: { owner: "x" } };
  await lapse.replaceCollection("c", properties, { ifMatch: "1" });
  const c = lapse.collection<{ n: number }>("c");
  const write: WriteOptions = { ttl: "never", msgId: "m" };
  const item: Item<{ n: number }> = await c.upsert("a", { n: 1 }, write);
  const operations: Operation<{ n: number }>[] = [{ op: "patch", id: "a", value: { n: 2 }, ttl: "1m" }];
  const [result]: Result<{ n: number }>[] = await c.batch(operations, { atomic: true });
  const failure: LapseError | undefined = result?.error;
  for await (const event of c.history("a")) {
    const e: Event<{ n: number }> = event;
    console.log(e.value?.n, item.deadline?.getTime(), failure?.retryable);
  }
}
export async function kit(): Promise<Date> {
  await using server: Server = await startLapse({ at: "now" });
  await using db: TestDatabase = await server.open();
  return (await db.advance(new Date())).now;
}
`;

/** What the block of the manual's page about traces leaves out. */
const traced = `
import { context } from "@opentelemetry/api";
import { Lapse, type Event } from "@lapsedb/lapse";
import { contextOf, otel } from "@lapsedb/lapse/otel";

declare const nc: ConstructorParameters<typeof Lapse>[0];
declare function mail(event: Event<unknown>): Promise<void>;
`;

/** Uses the types of the store for Express, which needs @types/express-session. */
const expressTypes = `
import { Lapse } from "@lapsedb/lapse";
import { LapseStore, type StoreOptions } from "@lapsedb/lapse/express";
import session, { type SessionData } from "express-session";

declare module "express-session" {
  interface SessionData {
    user: string;
  }
}
export async function store(lapse: Lapse): Promise<ReturnType<typeof session>> {
  const options: StoreOptions = { collection: lapse.collection<SessionData>("sessions"), touchAfter: "3m", absolute: "8h" };
  const store = new LapseStore(options);
  console.log(await store.endAll({ where: "doc.user == params.user", params: { user: "ann" } }));
  return session({ store, secret: "x", resave: false, saveUninitialized: false });
}
`;

test("the packed package works in an empty project with tsc --strict, and the manual runs", async () => {
  const project = mkdtempSync(join(tmpdir(), "lapse-"));
  try {
    await using server = await startLapse({ at: "now" });
    const env = { ...process.env, NATS_URL: server.url, SESSION_SECRET: "x", PORT: "0", NODE_TEST_CONTEXT: undefined }; // a test within the test reports for itself
    const run = (command: string, ...args: string[]) => execFileSync(command, args, { cwd: project, encoding: "utf8", shell, env });
    rmSync(join(sdk, "dist"), { recursive: true, force: true }); // so that pack has to build it
    const [{ filename }] = JSON.parse(run("npm", "pack", sdk, "--json", "--loglevel=error").replace(/^[^[]*/, ""));
    assert(statSync(join(project, filename)).size <= 60_000);
    // What the package needs comes from here, without the network.
    const here = ["@nats-io/nats-core", "@nats-io/jetstream", "@nats-io/transport-node", "@opentelemetry/api", "express", "express-session"].map((name) => [name, `file:${join(sdk, "node_modules", name)}`]);
    const dependencies = { "@lapsedb/lapse": `file:${filename}`, ...Object.fromEntries(here) };
    writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", dependencies }));
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--loglevel=error");
    const pages = blocks("typescript", "ts");
    const [program, example] = [pages.slice(0, -1).join(""), pages.at(-1)!];
    writeFileSync(join(project, "types.ts"), types);
    writeFileSync(join(project, "program.ts"), program);
    writeFileSync(join(project, "traced.ts"), traced + blocks("traces", "ts")[0]);
    run(process.execPath, tsc, ...strict, "types.ts", "traced.ts");
    symlinkSync(join(sdk, "node_modules/@types"), join(project, "node_modules/@types")); // for process, node:test and Express
    writeFileSync(join(project, "express.ts"), expressTypes);
    writeFileSync(join(project, "example.test.ts"), example);
    const [follower] = blocks("../README", "ts");
    writeFileSync(join(project, "follower.ts"), follower!);
    run(process.execPath, tsc, ...strict, "--types", "node", "express.ts", "program.ts", "example.test.ts", "follower.ts");
    const wanted = (text: string) => [...text.matchAll(/\/\/ → (.*)$/gm)].map(([, line]) => line);
    assert.deepEqual(run(process.execPath, "program.js").trim().split("\n"), wanted(program));
    const following = spawn(process.execPath, ["follower.js"], { cwd: project, env, stdio: ["ignore", "pipe", "inherit"] });
    assert.deepEqual(await once(createInterface({ input: following.stdout }), "line"), wanted(follower!));
    following.kill();
    run(process.execPath, "--test", "example.test.js");
    const [application] = blocks("sessions", "js");
    writeFileSync(join(project, "shop.js"), application + shop);
    run(process.execPath, "shop.js");
  } finally {
    rmSync(project, { recursive: true });
  }
});
