// Runs schema/vectors, whose README says what the files mean.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { wholeSeconds } from "../src/duration.js";
import { LapseError, type Lapse } from "../src/index.js";
import { idOf, tokenOf } from "../src/names.js";
import { startLapse, type Server, type TestDatabase } from "../src/test.js";
import { StandIn, type Answer } from "./standin.js";

const vectors = new URL("../../../../schema/vectors/", import.meta.url);
const read = (file: string): any[] => JSON.parse(readFileSync(new URL(file, vectors), "utf8"));

interface Call {
  do: string;
  collection?: string;
  id?: string;
  args?: any[];
  break?: number;
  fail?: string[];
}

describe("ids", () => {
  for (const { id, token, decodes, refused } of read("pure/ids.json")) {
    test(JSON.stringify(id ?? token).slice(0, 60), () => {
      if (refused) {
        assert.throws(() => (id === undefined ? idOf(token) : tokenOf(id)), { code: 400, error: "bad_id" });
        return;
      }
      assert.equal(idOf(token), id);
      if (!decodes) {
        assert.equal(tokenOf(id), token);
      }
    });
  }
});

test("lengths of time", () => {
  for (const { length, seconds, refused } of read("pure/lengths.json")) {
    if (refused) {
      assert.throws(() => wholeSeconds(length), RangeError, JSON.stringify(length));
    } else {
      assert.equal(wholeSeconds(length), seconds);
    }
  }
});

describe("requests", () => {
  for (const vector of read("pure/requests.json")) {
    test(vector.name, async () => {
      const notFound: Answer = { headers: { "Lapse-Status": "404" }, body: '{"code":404,"error":"document_not_found","message":"m"}' };
      const nc = new StandIn(() => notFound);
      const result = await resultOf(nc.lapse(), vector);
      if (vector.request) {
        const { subject, headers, body } = nc.sent[0]!;
        const sent = { subject: subject.replace("lapse.main.api.", ""), headers, body: body === "" ? {} : JSON.parse(body) };
        assertWanted(sent, vector.request);
      } else {
        assert.equal(nc.sent.length, 0);
        assertWanted(result, vector.want);
      }
    });
  }
});

describe("replies", () => {
  for (const vector of read("pure/replies.json")) {
    test(vector.name, async () => assertWanted(await resultOf(new StandIn(() => vector.reply).lapse(), vector), vector.want));
  }
});

describe("scenes", () => {
  let server: Server;
  before(async () => void (server = await startLapse()));
  after(() => server.stop());
  for (const file of readdirSync(new URL("scenes/", vectors))) {
    for (const scene of read(`scenes/${file}`)) {
      test(`${file}: ${scene.name}`, async () => {
        await using db = await server.open(scene.at && { at: new Date(scene.at) });
        await play(db, scene.steps);
      });
    }
  }
});

/** Takes the steps of a scene. */
async function play(db: TestDatabase, steps: any[]): Promise<void> {
  const named: Record<string, any> = {};
  let from = 1;
  for (const [i, raw] of steps.entries()) {
    const step = substitute(raw, named);
    let result: any;
    if ("advance" in step) {
      result = await resultOf(db, { do: "advance", args: [momentOf(step.advance)] });
    } else if (step.events) {
      result = await resultOf(db, { do: "changes", args: [{ from, until: "now" }] });
      from = (result.at(-1)?.seq ?? from - 1) + 1;
    } else {
      result = await resultOf(db, step);
    }
    const want = step.events ?? step.want;
    if (want === undefined && !("want" in step)) {
      assert.equal(result?.error, undefined, `step ${i}: ${JSON.stringify({ step, result })}`);
    } else {
      assertWanted(result, want, `step ${i}, ${step.do ?? "advance"}: ${JSON.stringify(result)?.slice(0, 2000)}`);
    }
    if (step.as) {
      named[step.as] = result;
    }
  }
}

/** Returns the result of a call as JSON would show it, or its refusal as {error}. */
async function resultOf(db: Lapse, call: Call): Promise<any> {
  try {
    return plain(await made(db, call));
  } catch (err) {
    if (!(err instanceof LapseError)) {
      throw err;
    }
    return { error: { code: err.code, error: err.error, retryable: err.retryable } };
  }
}

async function made(db: any, { do: method, collection, id, args = [], ...rest }: Call): Promise<any> {
  const on = collection === undefined ? db : db.collection(collection);
  const all = moments([...(id === undefined ? [] : [id]), ...args]);
  switch (method) {
    case "query":
    case "history":
    case "changes":
    case "expirations":
    case "warnings":
      return listOf(on[method](...all), rest.break);
    case "pages":
      return (await listOf(on.query(...all).pages())).flatMap((page: any) => page.items);
    case "handle":
      return handled(on, all[0], rest.fail ?? []);
    default:
      return on[method](...all);
  }
}

async function listOf(of: AsyncIterable<any>, breakAt = Infinity): Promise<any[]> {
  const list = [];
  for await (const item of of) {
    list.push(item);
    if (list.length === breakAt) {
      break;
    }
  }
  return list;
}

async function handled(db: any, { poison, ...options }: any, fail: string[]): Promise<object> {
  const handled: unknown[] = [];
  const poisoned: unknown[] = [];
  const handler = async (event: any) => {
    if (fail.includes(event.id)) {
      throw new Error("failed as wanted");
    }
    handled.push(event);
  };
  await db.handle(handler, { ...options, ...(poison && { poison: { ...poison, handler: async (event: any) => void poisoned.push(event) } }) });
  return { handled, poisoned };
}

/** Returns a value as JSON shows it, with members that are undefined left out. */
function plain(value: unknown): any {
  return value instanceof LapseError
    ? { code: value.code, error: value.error, retryable: value.retryable }
    : value instanceof Date
      ? value.toISOString()
      : Array.isArray(value)
        ? value.map(plain)
        : typeof value === "object" && value !== null
          ? Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member)]))
          : value;
}

/** Replaces names of results by their members, and repetitions by their text. */
function substitute(value: any, named: Record<string, any>): any {
  if (typeof value === "string" && value.startsWith("$")) {
    return value.slice(1).split(".").reduce((on, member) => on[member], named);
  } else if (Array.isArray(value)) {
    return value.map((v) => substitute(v, named));
  } else if (typeof value === "object" && value !== null) {
    return "$repeat" in value ? value.$repeat.repeat(value.times) : Object.fromEntries(Object.entries(value).map(([name, v]) => [name, substitute(v, named)]));
  }
  return value;
}

function momentOf(text: any): any {
  return typeof text === "string" && /^\d{4}-\d\d-\d\dT.*Z$/.test(text) ? new Date(text) : text;
}

/** Makes dates of the moments in arguments. */
function moments(value: any, name = ""): any {
  if (["expireAt", "from", "until"].includes(name)) {
    return momentOf(value);
  } else if (Array.isArray(value)) {
    return value.map((v) => moments(v));
  } else if (typeof value === "object" && value !== null && !(value instanceof Date)) {
    return Object.fromEntries(Object.entries(value).map(([name, v]) => [name, ["value", "params"].includes(name) ? v : moments(v, name)]));
  }
  return value;
}

/** Asserts that a result has what is wanted: of an object only the members that are given. */
function assertWanted(got: any, want: any, about = JSON.stringify(got)): void {
  if (want === null) {
    assert.equal(got ?? null, null, about);
  } else if (Array.isArray(want)) {
    assert(Array.isArray(got), about);
    assert.equal(got.length, want.length, about);
    want.forEach((w, i) => assertWanted(got[i], w, about));
  } else if (typeof want === "object") {
    assert.equal(typeof got, "object", about);
    for (const [name, w] of Object.entries(want)) {
      assertWanted(got?.[name], w, `${name} of ${about}`);
    }
  } else {
    assert.deepEqual(got, want, about);
  }
}
