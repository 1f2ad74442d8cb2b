import { headers as newHeaders, type MsgHdrs, type NatsConnection } from "@nats-io/nats-core";
import { Lapse } from "../src/index.js";

/** A request as a stand-in of a connection sees it. */
export interface Sent { subject: string; body: string; headers: Record<string, string> }

/** How a stand-in answers: with a reply, or with the error of a name. */
export type Answer = string | { headers: Record<string, string>; body?: string };

/** A connection that answers each request as answer says. */
export class StandIn {
  readonly sent: Sent[] = [];
  readonly flushes: number[] = [];
  info: object | undefined = { max_payload: 1024 };
  closed = false;
  private readonly events: { type: string }[] = [];
  private wake = () => {};

  constructor(private readonly answer: (sent: Sent, n: number) => Answer | undefined) {}

  lapse(options = {}): Lapse {
    return new Lapse(this as unknown as NatsConnection, options);
  }

  isClosed(): boolean {
    return this.closed;
  }

  async flush(): Promise<void> {
    this.flushes.push(this.sent.length);
  }

  tell(type: string): void {
    this.events.push({ type });
    this.wake();
  }

  async *status(): AsyncGenerator<{ type: string }> {
    for (;;) {
      for (let event; (event = this.events.shift()); ) {
        yield event;
      }
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  request(subject: string, body = "", { headers }: { headers?: MsgHdrs } = {}): Promise<unknown> {
    const sent = { subject, body, headers: Object.fromEntries([...(headers ?? [])].map(([name, [value]]) => [name, value!])) };
    const answer = this.answer(sent, this.sent.push(sent));
    if (answer === undefined) {
      return new Promise(() => {});
    }
    if (typeof answer === "string") {
      return Promise.reject(Object.assign(new Error(answer), { name: answer }));
    }
    const reply = newHeaders();
    Object.entries(answer.headers).forEach(([name, value]) => reply.set(name, value));
    return Promise.resolve({ headers: reply, string: () => answer.body ?? "" });
  }
}
