// Reads a durable, as testdata/reader does with the Go client.
import { appendFileSync } from "node:fs";
import { connect } from "@nats-io/transport-node";
import { Lapse } from "../src/index.js";

const [url, database, durable, file, end] = process.argv.slice(2) as [string, string, string, string, string | undefined];
const nc = await connect({ servers: url, maxReconnectAttempts: -1, reconnectTimeWait: 100 });
const db = new Lapse(nc, { database });
for await (const e of db.changes({ durable, ackWait: "1s", types: ["DocumentReplaced"], from: "start", ...(end && { until: "now" }) })) {
  appendFileSync(file, `${e.seq}\n`);
}
appendFileSync(file, "end\n");
await nc.close();
