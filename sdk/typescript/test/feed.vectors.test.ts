// Runs the files of schema/vectors about events and durables, whose README says what they mean.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { headers as newHeaders, type Msg } from "@nats-io/nats-core";
import { decodeEvent, type Delivery } from "../src/event.js";
import { check, durableConsumer } from "../src/feed.js";
import { parsedTries, triesOf } from "../src/handle.js";
import { LapseError } from "../src/index.js";
import { Log } from "../src/log.js";
import { follows, nextGroup, Window, type Inquiry } from "../src/window.js";
import { StandIn, type Sent } from "./standin.js";

const read = (name: string): any[] => JSON.parse(readFileSync(new URL(`../../../../schema/vectors/pure/${name}.json`, import.meta.url), "utf8"));

const delivery = (d: Partial<Delivery> & { bytes?: number }): Delivery => ({ size: d.bytes ?? 0, ...d }) as Delivery;

for (const { name, steps } of read("windows")) {
  test(`window: ${name}`, () => {
    const w = new Window(true);
    let q: Inquiry | undefined;
    for (const [i, s] of steps.entries()) {
      let take = () => w.take();
      if (s.deliver) {
        w.add(delivery(s.deliver));
      } else if (s.ack) {
        w.remove(s.ack);
      } else if (s.lost) {
        w.drop();
      } else if (s.ask) {
        q = w.inquire();
      } else if (s.answer) {
        const asked = q!;
        take = () => w.settle(asked, follows(asked, s.answer.ack_floor) || s.answer.first === asked.first.seq, s.answer.num_ack_pending);
      } else if (s.pull) {
        assert.equal(w.mayPull(s.pull), s.may, `step ${i}`);
      }
      if ("next" in s || s.answer) {
        assert.equal(take()?.seq ?? null, s.next ?? null, `step ${i}`);
      }
    }
  });
}

test("a pull brings at most what may wait", () => {
  const w = new Window(true);
  assert.deepEqual(w.pull(1), { batch: 1 });
  assert.deepEqual(w.pull(8), { batch: 8 });
  assert.deepEqual(w.pull(500), { batch: 500, max_bytes: 16 << 20 });
  w.add(delivery({ seq: 1, number: 1, bytes: 1 << 20 }));
  assert.deepEqual(w.pull(500), { batch: 499, max_bytes: 15 << 20 });
  w.add(delivery({ seq: 2, number: 2, bytes: 8 << 20 }));
  assert.deepEqual(w.pull(500), { batch: 3 });
  w.add(delivery({ seq: 3, number: 3, bytes: 8 << 20 }));
  assert.deepEqual(w.pull(500), { batch: 1 });
});

for (const { name, pulls } of read("pulls")) {
  test(`pulls: ${name}`, () => {
    let size = 1;
    for (const [i, p] of pulls.entries()) {
      assert.equal(size, p.size, `pull ${i}`);
      size = nextGroup(size, { redelivered: false, ...p, full: p.received >= size });
    }
  });
}

test("tries", () => {
  for (const { name, seq, times, after, tries, failed, crashed } of read("tries")) {
    assert.deepEqual(triesOf(parsedTries(tries), { seq, times }, after), { failed, crashed }, name);
  }
});

for (const [i, v] of read("events").entries()) {
  test(`event: ${v.name}`, () => {
    const headers = newHeaders();
    Object.entries(v.headers).forEach(([name, value]) => headers.set(name, value as string));
    const msg = { subject: `lapse.main.events.${v.subject}`, headers, data: new TextEncoder().encode(v.body), string: () => v.body } as Msg;
    const event = decodeEvent(delivery({ seq: i + 1, msg }), JSON.parse);
    assert.equal(event === undefined, v.want.length === 0);
    assertWanted(event && JSON.parse(JSON.stringify(event)), v.want[0]);
  });
}

/** Asserts that a result has what is wanted: of an object only the members that are given. */
function assertWanted(got: any, want: any): void {
  if (typeof want !== "object" || want === null) {
    assert.deepEqual(got ?? null, want ?? null);
  } else {
    Object.entries(want).forEach(([name, w]) => assertWanted(got?.[name], w));
  }
}

/** A stand-in of a log with three events, and perhaps a consumer. */
function log(existing: object | undefined, created: (config: object) => void): Log {
  const noMessage = { error: { code: 404, err_code: 10037, description: "no message found" } };
  const answer = ({ subject, body }: Sent): object => {
    if (subject.startsWith("$JS.API.STREAM.INFO")) {
      return { state: { first_seq: 1, last_seq: 3 } };
    }
    if (subject.startsWith("$JS.API.STREAM.MSG.GET")) {
      const { seq } = JSON.parse(body);
      return seq > 3 ? noMessage : { message: { seq, hdrs: btoa(`NATS/1.0\r\nLapse-Time: ${946684800000 + seq * 1000}\r\n\r\n`) } };
    }
    if (subject.startsWith("$JS.API.CONSUMER.CREATE")) {
      created(JSON.parse(body).config);
      return JSON.parse(body);
    }
    return existing ? { config: { priority_policy: "none", ...existing } } : { error: { code: 404, err_code: 10014, description: "consumer not found" } };
  };
  return new Log(new StandIn((sent) => ({ headers: {}, body: JSON.stringify(answer(sent)) })).lapse().requests, undefined);
}

for (const { name, options, existing, consumer, want } of read("consumers")) {
  test(`consumer: ${name}`, async () => {
    const from = /^\d{4}-/.test(options.from) ? new Date(options.from) : options.from;
    let made: any = existing;
    const opening = (async () => {
      const o = { ...options, ...(from !== undefined && { from }) };
      check(o);
      await durableConsumer(log(existing, (config) => (made = config)), o);
    })();
    if (want) {
      await assert.rejects(opening, (e) => e instanceof LapseError && e.code === want.error.code && e.error === want.error.error && e.retryable === want.error.retryable);
      return;
    }
    await opening;
    const got = { max_deliver: -1, ...made, filter_subjects: made.filter_subjects ?? [made.filter_subject] };
    for (const [key, value] of Object.entries(consumer)) {
      assert.deepEqual(got[key], value, key);
    }
  });
}
