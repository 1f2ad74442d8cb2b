/// <reference lib="esnext.disposable" preserve="true" />
import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import type { NatsConnection } from "@nats-io/nats-core";
import { connect } from "@nats-io/transport-node";
import { wholeSeconds, type Duration } from "./duration.js";
import { LapseError } from "./errors.js";
import { stringify } from "./json.js";
import { Lapse } from "./lapse.js";
import type { Options } from "./types.js";

(Symbol as { asyncDispose: symbol }).asyncDispose ??= Symbol.for("Symbol.asyncDispose");

/** Milliseconds, since a move of the clock waits for all that it brings. */
const timeout = 60_000;

/** How `lapse test` is started. */
export interface StartOptions {
  /** The binary; by default LAPSE_BINARY, else `lapse` of the path. */
  binary?: string;
  /** Where the clocks begin, 2000 by default; `"now"` lets them run with the machine's. */
  at?: Date | "now";
  /** A file with an exported log, with which the database `main` begins. */
  load?: string;
  /** The URL at which Cosmos DB's protocol is served. */
  cosmos?: string;
  /** Further arguments. */
  args?: string[];
}

/**
 * Starts lapse, and ends it when its standard input closes: that happens when the test process
 * ends, in whatever way. Nothing else kills exactly this child on each operating system.
 */
const guardian = `
const [binary, ...args] = process.argv.slice(process.argv.indexOf("guard") + 1); // what precedes differs in Deno
const child = require("node:child_process").spawn(binary, args, { stdio: ["ignore", "inherit", "inherit"], windowsHide: true });
child.on("error", (err) => { console.error(err.message); process.exit(1); });
child.on("exit", (code) => process.exit(code ?? 1));
process.stdin.on("end", () => child.kill()).on("error", () => child.kill()).resume();
`;

/** Starts `lapse test`. It ends by `stop`, and with this process. */
export async function startLapse(options: StartOptions = {}): Promise<Server> {
  const { at, load, cosmos, args = [] } = options;
  const binary = options.binary ?? (process.env["LAPSE_BINARY"] || "lapse");
  const flags = ["test", "--listen", "127.0.0.1:0"];
  for (const [flag, value] of [["--at", at instanceof Date ? at.toISOString() : at], ["--load", load], ["--cosmos", cosmos]]) {
    if (value !== undefined) {
      flags.push(flag!, value);
    }
  }
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.toUpperCase().startsWith("LAPSE_")));
  const child = spawn(process.execPath, ["-e", guardian, "--", "guard", binary, ...flags, ...args], { env, detached: true, windowsHide: true, stdio: ["pipe", "pipe", "pipe"] });
  let said = "";
  child.stderr.on("data", (data) => (said = (said + data).slice(-4096)));
  const line = await new Promise<string>((resolve, reject) => {
    createInterface(child.stdout).once("line", resolve);
    child.once("error", reject);
    child.once("close", () => reject(new Error(`cannot start ${binary} (the option binary, or LAPSE_BINARY, names another): ${said.trim()}`)));
  });
  const ready: { nats: string; cosmos?: string } = JSON.parse(line);
  for (const handle of [child, child.stdin, child.stdout, child.stderr] as { unref?(): void }[]) {
    handle.unref?.(); // does not keep this process running
  }
  return new Server(child, ready.nats, ready.cosmos);
}

/** A running `lapse test`. */
export class Server {
  private readonly connections: NatsConnection[] = [];
  private shared: Promise<NatsConnection> | undefined;
  private opened = 0;

  /** @internal */
  constructor(private readonly child: ChildProcess, readonly url: string, readonly cosmos?: string) {}

  /** Returns a connection, which `stop` closes. */
  async connect(): Promise<NatsConnection> {
    const nc = await connect({ servers: this.url });
    this.connections.push(nc);
    return nc;
  }

  /** Opens an empty database, whose clock begins at a time, by default where the server's do. */
  async open(options: { at?: Date } & Omit<Options, "database"> = {}): Promise<TestDatabase> {
    const nc = await (this.shared ??= this.connect());
    const db = new TestDatabase(nc, { ...options, database: `t${process.pid}-${++this.opened}` });
    await db.clock("open", options.at && { at: options.at.toISOString() });
    return db;
  }

  /** Ends the server, and closes its connections. */
  async stop(): Promise<void> {
    await Promise.all(this.connections.splice(0).map((nc) => nc.close()));
    const { child } = this;
    if (child.exitCode === null && child.signalCode === null) {
      child.ref();
      await new Promise((resolve) => {
        child.once("exit", resolve);
        child.stdin!.destroy();
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** A database of `lapse test`, with a clock that the test moves. */
export class TestDatabase extends Lapse {
  /** Returns the time that the clock shows. */
  async now(): Promise<Date> {
    return new Date((await this.clock("now")).now);
  }

  /**
   * Moves the clock on: by whole seconds, to a time, or to the next second at which something
   * is due. When it returns, all that came due is in the log. events counts expiries and
   * warnings.
   */
  async advance(by: Duration | Date | "due"): Promise<{ now: Date; seq: number; events: number }> {
    const move = by === "due" ? { to: by } : by instanceof Date ? { to: by.toISOString() } : { by: wholeSeconds(by) };
    const { now, seq, events } = await this.clock("advance", move);
    return { now: new Date(now), seq, events };
  }

  /** Removes the database with its log. */
  async drop(): Promise<void> {
    await this.clock("drop");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.drop().catch((err: unknown) => {
      if (!(err instanceof LapseError) || err.error !== "database_not_found") {
        throw err;
      }
    });
  }

  /** @internal Sends a request to the clock. */
  async clock(request: string, body?: object): Promise<any> {
    return this.requests.ask({ tail: `test.${request}`, kind: "once", body: stringify(body), timeout });
  }
}
