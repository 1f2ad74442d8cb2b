// Reads the log with both APIs of nats.js and prints what it finds.
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import * as v2 from "nats";

const options = { servers: process.argv[2], timeout: 60000 };

async function read(api, js, manager) {
  const info = await manager.streams.info("LAPSE_main");
  console.log(`${api}: info ${info.config.subjects}`);
  const names = [];
  for await (const stream of manager.streams.list()) names.push(stream.config.name);
  console.log(`${api}: list ${names.sort()}`);
  const message = await manager.streams.getMessage("LAPSE_main", { seq: 2 });
  console.log(`${api}: message ${message.subject}`);
  const ordered = await js.consumers.get("LAPSE_main");
  console.log(`${api}: ordered ${await count(ordered)}`);
  await manager.consumers.add("LAPSE_main", { durable_name: "js", ack_policy: "explicit" });
  console.log(`${api}: pulled ${await count(await js.consumers.get("LAPSE_main", "js"))}`);
  await manager.consumers.delete("LAPSE_main", "js");
  try {
    await manager.streams.add({ name: "mine", subjects: ["mine"] });
  } catch (error) {
    console.log(`${api}: refused ${String(error).match(/not permitted/)}`);
  }
}

async function count(consumer) {
  let n = 0;
  const messages = await consumer.fetch({ max_messages: 5 });
  for await (const message of messages) {
    message.ack();
    n++;
  }
  return n;
}

const nc = await connect(options);
await read("@nats-io/jetstream", jetstream(nc, { timeout: 60000 }), await jetstreamManager(nc, { timeout: 60000 }));
await nc.close();

const old = await v2.connect(options);
await read("nats", old.jetstream({ timeout: 60000 }), await old.jetstreamManager({ timeout: 60000 }));
await old.close();
