import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { connect as dial, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createInterface } from "node:readline";

/** The environment of a process of a test. */
export const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("LAPSE_")));

const binary = process.env["LAPSE_BINARY"] || "lapse";

async function listening(server: Server): Promise<number> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  return (server.address() as AddressInfo).port;
}

/** Returns a port of 127.0.0.1 that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  const port = await listening(server);
  await once(server.close(), "close");
  return port;
}

/** A proxy whose connections can be cut. */
export class Proxy {
  port = 0;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((from) => {
    const to = dial(this.target, "127.0.0.1");
    for (const [a, b] of [[from, to], [to, from]] as const) {
      this.#sockets.add(a);
      a.pipe(b);
      a.on("error", () => a.destroy()).on("close", () => {
        this.#sockets.delete(a);
        b.destroy();
      });
    }
  });

  constructor(private readonly target: number) {}

  async listen(): Promise<void> {
    this.port = await listening(this.#server);
  }

  cut(): void {
    this.#sockets.forEach((socket) => socket.destroy());
  }

  close(): void {
    this.#server.close();
    this.cut();
  }
}

/** Starts `lapse serve` at a port, and waits until it serves. */
export async function serve(port: number, ...args: string[]): Promise<ChildProcess> {
  const child = spawn(binary, ["serve", "--listen", `127.0.0.1:${port}`, "--console", "off", ...args], { env: environment, stdio: ["ignore", "ignore", "pipe"] });
  let last = "";
  for await (const line of createInterface(child.stderr!)) {
    last = line;
    if (line.includes("ready")) {
      child.stderr!.resume();
      return child;
    }
  }
  throw new Error(`${binary} serve did not start: ${last}`);
}

/** Kills a process. */
export async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    child.kill("SIGKILL");
    await once(child, "exit");
  }
}
