// Compares gets by 64 callers with what they could be at best: a loop with the connection's
// request, three headers of the reply, and JSON.parse. LAPSE_BINARY names the binary.
import { Lapse } from "../src/index.js";
import { startLapse } from "../src/test.js";

const callers = 64;
const gets = Number(process.argv[2] ?? 2000);
const rounds = 60;

await using server = await startLapse();
const nc = await server.connect();
const lapse = new Lapse(nc);
await lapse.createCollection("sessions", { defaultTtl: "30m" });
const sessions = lapse.collection("sessions");
await sessions.upsert("a", { user: "x", roles: ["reader", "writer"], text: "x".repeat(200) });

async function loop(): Promise<void> {
  const { headers, ...msg } = await request();
  if (headers.get("Lapse-Status") !== "200" || headers.get("Lapse-Seq") === "" || headers.get("Lapse-Deadline") === "" || msg.value.user !== "x") {
    throw new Error("another reply than wanted");
  }
}

async function request() {
  const msg = await nc.request("lapse.main.api.document.get.sessions.a", "", { timeout: 10_000 });
  return { headers: msg.headers!, value: JSON.parse(msg.string()) };
}

async function get(): Promise<void> {
  const item = await sessions.get("a");
  if (item?.value.user !== "x" || item.deadline === null) {
    throw new Error("another item than wanted");
  }
}

/** Returns how many milliseconds the calls of all callers take. */
async function time(call: () => Promise<void>): Promise<number> {
  let remaining = gets;
  const began = performance.now();
  await Promise.all(Array.from({ length: callers }, async () => {
    while (remaining-- > 0) {
      await call();
    }
  }));
  return performance.now() - began;
}

const took = { request: 0, get: 0 };
for (let round = 0; round <= rounds; round++) {
  for (const [name, call] of round % 2 ? ([["request", loop], ["get", get]] as const) : ([["get", get], ["request", loop]] as const)) {
    const ms = await time(call);
    took[name] += round > 0 ? ms : 0; // the first round warms up
  }
}
const rate = (ms: number) => `${((1000 * gets * rounds) / ms).toFixed(0)}/s`;
console.log(`request ${rate(took.request)}, get ${rate(took.get)}, ratio ${(took.request / took.get).toFixed(2)}`);
await nc.close();
