import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { promisify } from "node:util";
import { after, before, test, type TestContext } from "node:test";
import express, { type ErrorRequestHandler, type Request, type Response } from "express";
import session, { type SessionData } from "express-session";
import { LapseStore, type StoreOptions } from "../src/express.js";
import type { LapseError, Properties } from "../src/index.js";
import { startLapse, type Server, type TestDatabase } from "../src/test.js";

declare module "express-session" {
  interface SessionData {
    user?: string;
  }
}

let server: Server;
before(async () => void (server = await startLapse({ at: new Date("2026-01-01T00:00:00Z") })));
after(() => server.stop());

const minute = 60_000;

/** What a request does with its session, before the reply. */
type Route = (req: Request, res: Response) => unknown;

/** An application, and browsers of it. */
interface App {
  db: TestDatabase;
  store: LapseStore;
  browser(): Browser;
  /** Errors that Express got of the store since the last call. */
  errors(): Promise<string[]>;
  /** How many events of these types there are. */
  events(...types: string[]): Promise<number>;
}

/** Keeps the cookies of one browser. */
interface Browser {
  /** Sends a request, which does this, and returns the user of the session. */
  run(route?: Route): Promise<string>;
  sid(): string;
}

async function serve(t: TestContext, options: Partial<StoreOptions> = {}, cookie: session.CookieOptions = { maxAge: 10 * minute }, more: Partial<session.SessionOptions> = {}, properties: Properties = { defaultTtl: "never" }): Promise<App> {
  const db = await server.open();
  await db.createCollection("sessions", properties);
  const store = new LapseStore({ collection: db.collection<SessionData>("sessions"), ...options });
  const routes: Route[] = [];
  const errors: string[] = [];
  const app = express();
  app.use(session({ store, secret: "x", resave: false, saveUninitialized: false, cookie, ...more }));
  app.get("/:route", async (req, res) => {
    await routes[Number(req.params.route)]!(req, res);
    res.end(req.session?.user ?? "nobody");
  });
  app.use(((err: LapseError, _req, res, _next) => {
    errors.push(err.error ?? String(err));
    if (!res.headersSent) {
      res.status(500).end("failed");
    }
  }) satisfies ErrorRequestHandler);
  const http = app.listen(0, "127.0.0.1");
  await once(http, "listening");
  t.after(async () => {
    http.close();
    http.closeAllConnections();
    await db.drop();
  });
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}/`;
  return {
    db,
    store,
    browser() {
      let cookie = "";
      return {
        async run(route = () => {}) {
          const response = await fetch(url + (routes.push(route) - 1), { headers: { cookie } });
          const text = await response.text();
          cookie = response.headers.getSetCookie()[0]?.split(";")[0] ?? cookie;
          return text;
        },
        sid: () => decodeURIComponent(cookie).match(/=s:(.*)\./)![1]!,
      };
    },
    async errors() {
      await new Promise((resolve) => setImmediate(resolve)); // as express-session does with an error, before its reply ends
      return errors.splice(0);
    },
    async events(...types) {
      let count = 0;
      for await (const _ of db.changes({ collection: "sessions", ...(types.length > 0 && { types }), from: "start", until: "now" })) {
        count++;
      }
      return count;
    },
  };
}

const put = (user: string): Route => (req) => void (req.session.user = user);
const logout: Route = (req) => promisify(req.session.destroy.bind(req.session))();
const regenerate = (req: Request) => promisify(req.session.regenerate.bind(req.session))();

/** Returns the seconds that a session lives from its last change on; null for ever, undefined if it does not live. */
async function lifetime({ db }: App, { sid }: Browser): Promise<number | null | undefined> {
  const item = await db.collection("sessions").get(sid());
  return item ? item.deadline && (item.deadline.getTime() - item.modified.getTime()) / 1000 : undefined;
}

test("a logout is final, whatever a request does that began before it", async (t) => {
  const app = await serve(t);
  const saves: [string, Route, string[]][] = [
    ["changes it", put("bob"), ["document_not_found"]],
    ["changes nothing", () => {}, []],
    ["changes its cookie", (req) => void (req.session.cookie.maxAge = minute), []],
    ["ends it, too", logout, []],
    ["copies it to a new id", async (req) => {
      const { user } = req.session;
      await regenerate(req);
      req.session.user = user!;
    }, ["document_not_found"]],
  ];
  for (const [what, route, errors] of saves) {
    const browser = app.browser();
    await browser.run(put("ann"));
    assert.equal(await browser.run(), "ann");
    await browser.run(async (req, res) => {
      await browser.run(logout);
      await route(req, res);
    });
    assert.equal(await browser.run(), "nobody", what);
    assert.deepEqual([...new Set(await app.errors())], errors, what);
    assert.equal(await app.db.collection("sessions").count(), 0, what);
  }
});

test("of two tabs that change a session one fails, and a renewal is no change", async (t) => {
  const app = await serve(t);
  const browser = app.browser();
  await browser.run(put("ann"));
  await browser.run(async (req, res) => {
    await browser.run(put("bob"));
    put("cy")(req, res);
  });
  assert.equal(await browser.run(), "bob");
  assert.deepEqual(await app.errors(), ["precondition_failed"]);
  await app.db.advance("5m");
  await browser.run(async (req, res) => {
    await browser.run();
    put("di")(req, res);
  });
  assert.equal(await browser.run(), "di");
  assert.deepEqual(await app.errors(), []);
  assert.equal(await app.events("DocumentTouched"), 1);
});

test("touch renews one request in ten, and what is gone stays gone", async (t) => {
  for (const [options, seconds, touches] of [[{}, 6, 10], [{ touchAfter: "5m" }, 30, 2], [{ touchAfter: 0 }, 30, 20], [{ touchAfter: "1h" }, 30, 2]] as const) {
    const app = await serve(t, options);
    const browser = app.browser();
    await browser.run(put("ann"));
    for (let time = seconds; time <= 600; time += seconds) {
      await app.db.advance(seconds);
      assert.equal(await browser.run(), "ann");
    }
    assert.equal(await app.events("DocumentTouched"), touches, JSON.stringify(options));
    assert.equal(await app.events("DocumentReplaced"), 0);
    await app.db.advance("10m");
    assert.equal(await browser.run(), "nobody");
    assert.deepEqual(await app.errors(), []);
  }
});

test("maxAge", async (t) => {
  const app = await serve(t, {}, { maxAge: 3000 }, {}, { defaultTtl: "1d" });
  const change = (changes: object | (() => object)): Route => (req) => void Object.assign(req.session.cookie, typeof changes === "function" ? changes() : changes);
  for (const [changes, expected] of [
    [{ maxAge: 60 * minute }, 3600],
    [{ maxAge: 1500 }, 2],
    [{ maxAge: 0 }, undefined],
    [{ maxAge: -1 }, undefined],
    [{ maxAge: null }, 86400],
    [{ maxAge: false }, 86400],
    [{ maxAge: 100 * 365 * 24 * 60 * minute }, 2 ** 31 - 1],
    [{ expires: new Date(0) }, undefined],
    [{ expires: false }, 86400],
    [() => ({ expires: new Date(Date.now() + 24 * 60 * minute) }), 86400],
  ] as const) {
    for (const content of [false, true]) {
      const browser = app.browser();
      await browser.run(put("ann"));
      assert.equal(await lifetime(app, browser), 3);
      await browser.run((req, res) => {
        change(changes)(req, res);
        if (content) {
          put("bob")(req, res);
        }
      });
      const what = `${changes === Object(changes) && JSON.stringify(changes)} ${content}`;
      assert.equal(await lifetime(app, browser), expected, what);
      assert.equal(await browser.run(), expected === undefined ? "nobody" : content ? "bob" : "ann", what);
      assert.equal(await lifetime(app, browser), expected, `${what}, and the next request`);
      const first = app.browser();
      await first.run((req, res) => {
        put("cy")(req, res);
        change(changes)(req, res);
      });
      assert.equal(await first.run(), expected === undefined ? "nobody" : "cy", `${what} of a new session`);
    }
  }
  assert.deepEqual(await app.errors(), []);
});

test("a change of the cookie alone is stored, and undoes no change of another tab", async (t) => {
  const app = await serve(t);
  const browser = app.browser();
  const cookie = async () => (await app.db.collection("sessions").get(browser.sid()))!.value.cookie;
  await browser.run(put("ann"));
  await browser.run(async (req) => {
    await browser.run(put("bob"));
    Object.assign(req.session.cookie, { maxAge: 60 * minute, sameSite: "lax" });
  });
  assert.equal(await browser.run(), "bob");
  assert.equal(await lifetime(app, browser), 3600);
  assert.equal((await cookie()).sameSite, "lax");
  await browser.run((req) => void (req.session.cookie.sameSite = undefined));
  assert.equal("sameSite" in (await cookie()), false);
  const written = await app.events();
  await browser.run();
  assert.equal(await app.events(), written);
  assert.deepEqual(await app.errors(), []);
});

test("sessions live for weeks, up to their absolute end", async (t) => {
  const day = 24 * 60 * minute;
  for (const maxAge of [7 * day, null, 60 * day]) {
    const app = await serve(t, { absolute: "30d" }, { maxAge: maxAge! }, {}, { defaultTtl: "7d" });
    const browser = app.browser();
    await browser.run(put("ann"));
    for (let days = 0; days < 28; days += 4) {
      await app.db.advance("4d");
      assert.equal(await browser.run(days === 12 ? put("bob") : () => {}), days < 12 ? "ann" : "bob");
    }
    await app.db.advance("1d");
    const written = await app.events();
    await browser.run(); // the end does not move any more
    assert.equal(await app.events(), written);
    await browser.run(put("cy"));
    assert.equal(await app.events(), written + 1);
    await app.db.advance(24 * 3600 - 1);
    assert.equal(await browser.run(), "cy", `${maxAge}`);
    assert.equal((await app.db.advance(1)).events, 1);
    assert.equal(await browser.run(), "nobody");
    assert.deepEqual(await app.errors(), []);
    const idler = app.browser();
    await idler.run(put("ann"));
    await app.db.advance(maxAge === 60 * day ? "30d" : "7d");
    assert.equal(await idler.run(), "nobody");
  }
});

/** A store without an application. Its methods return promises. */
async function alone(t: TestContext, options: Partial<StoreOptions> = {}) {
  const db = await server.open();
  t.after(() => db.drop());
  await db.createCollection("sessions", { defaultTtl: "1h", indexingPolicy: { includedPaths: [{ path: "/user" }] } });
  const store = new LapseStore({ collection: db.collection<SessionData>("sessions"), ...options });
  return {
    db,
    store,
    get: promisify<string, SessionData | null | undefined>(store.get.bind(store)),
    set: promisify<string, SessionData>(store.set.bind(store)),
    touch: promisify<string, SessionData | undefined>(store.touch.bind(store)),
    destroy: promisify<string>(store.destroy.bind(store)),
  };
}

const sessionOf = (members: object): SessionData => ({ cookie: { originalMaxAge: 10 * minute }, ...members });

test("regenerate ends the old session, and the new one is another", async (t) => {
  const app = await serve(t);
  const browser = app.browser();
  await browser.run(put("ann"));
  const old = browser.sid();
  const login: Route = async (req) => {
    await regenerate(req);
    assert.equal(req.session.user, undefined);
    req.session.user = "bob";
  };
  await browser.run(login);
  assert.notEqual(browser.sid(), old);
  assert.equal(await browser.run(), "bob");
  assert.equal(await app.db.collection("sessions").get(old), null);
  await app.db.advance("1h"); // a login form that was open for too long
  await browser.run(login);
  assert.equal(await browser.run(), "bob");
  assert.equal(await app.db.collection("sessions").count(), 1);
  assert.deepEqual(await app.errors(), []);
});

test("a new session takes the place of no other", async (t) => {
  const app = await serve(t, {}, {}, { genid: () => "same" });
  const [ann, bob] = [app.browser(), app.browser()];
  await ann.run(put("ann"));
  await bob.run(put("bob"));
  assert.equal(await ann.run(), "ann");
  assert.deepEqual(await app.errors(), ["document_exists"]);
});

test("a session that is saved for every request is written only when it has changed", async (t) => {
  const app = await serve(t, {}, {}, { resave: true, rolling: true, saveUninitialized: true }, { defaultTtl: "1d" });
  const browser = app.browser();
  await browser.run(async (req) => {
    const save = promisify(req.session.save.bind(req.session));
    await Promise.all([save(), save()]); // one after the other
  });
  await browser.run();
  assert.equal(await lifetime(app, browser), 86400);
  await app.db.advance("12h");
  await browser.run();
  assert.equal(await app.events("DocumentCreated"), 1);
  assert.equal(await app.events("DocumentTouched"), 1);
  assert.equal(await app.events("DocumentReplaced"), 0);
  assert.deepEqual(await app.errors(), []);
});

test("the absolute end holds although a process was killed before it had written it", async (t) => {
  const app = await serve(t, { absolute: "15m" });
  const end = new Date((await app.db.now()).getTime() + 15 * minute);
  const sessions = app.db.collection("sessions");
  const [soon, reader, writer] = [app.browser(), app.browser(), app.browser()];
  for (const browser of [soon, reader, writer]) {
    await browser.run(put("ann"));
  }
  await app.db.advance("9m");
  for (const browser of [soon, reader, writer]) {
    await sessions.touch(browser.sid());
  }
  assert.equal(await soon.run(), "ann");
  assert.deepEqual((await sessions.get(soon.sid()))!.deadline, end);
  await app.db.advance(end);
  assert.equal(await soon.run(), "nobody");
  await reader.run();
  assert.deepEqual(await app.errors(), []);
  await writer.run(put("bob"));
  assert.deepEqual(await app.errors(), ["document_not_found"]);
  assert.equal(await sessions.count(), 0);
});

test("sessions that are older than the option absolute end, too", async (t) => {
  const { db, get, set, touch } = await alone(t);
  await set("a", sessionOf({}));
  const store = new LapseStore({ collection: db.collection("sessions"), absolute: "5m" });
  await promisify<string, SessionData>(store.touch.bind(store))("a", sessionOf({}));
  await db.advance(299);
  assert.notEqual(await get("a"), null);
  await touch("a", undefined);
  await db.advance(1);
  assert.equal(await get("a"), null);
});

test("all sessions of a user end in one call", async (t) => {
  const { db, store, set, get } = await alone(t);
  const ids = Array.from({ length: 1500 }, (_, i) => `s${i}`);
  await Promise.all(ids.map((sid, i) => set(sid, sessionOf({ user: i % 3 ? "ann" : "bob" }))));
  assert.equal(await store.endAll({ where: "doc.user == params.user && doc.id != params.sid", params: { user: "ann", sid: "s1" } }), 999);
  assert.equal((await get("s1"))?.user, "ann");
  assert.equal(await store.endAll({ where: "doc.user == params.user", params: { user: "ann" } }), 1);
  assert.equal(await get("s1"), null);
  await db.collection("sessions").hold("s0");
  await assert.rejects(store.endAll(), { error: "document_held" });
  await db.collection("sessions").release("s0");
  await store.endAll();
  assert.equal(await db.collection("sessions").count(), 0);
});

test("a store without requests: copies, repeats, and what has ended", async (t) => {
  const { db, store, get, set, touch, destroy } = await alone(t);
  await set("a", sessionOf({ user: "ann" }));
  await set("a", sessionOf({ user: "bob" })); // nobody has loaded it
  const first = (await get("a"))!;
  const second = (await get("a"))!;
  await set("a", { ...first, user: "cy" });
  await assert.rejects(set("a", { ...second, user: "di" }), { error: "precondition_failed", code: 412, retryable: false });
  await destroy("a");
  await destroy("a");
  for (const gone of [first, { ...first, user: "ed" }, second]) {
    await assert.rejects(set("a", gone), { error: "document_not_found", code: 404 });
    await touch("a", gone);
  }
  await touch("a", undefined);
  assert.equal(await get("a"), null);

  const data = sessionOf({ user: "ann" });
  await Promise.all([1, 2, 3].map((visits) => set("b", Object.assign(data, { visits })))); // one after the other
  assert.deepEqual({ ...(await get("b")), cookie: null }, { user: "ann", visits: 3, cookie: null });
  await db.advance(300);
  await touch("b", undefined);
  await touch("b", { cookie: { originalMaxAge: 20 * minute } });
  await db.advance(1199);
  assert.deepEqual({ ...(await get("b")), cookie: null }, { user: "ann", visits: 3, cookie: null });
  store.touch("b");
  store.destroy("c"); // without a callback
});

test("members of a session that have a meaning in a document are data", async (t) => {
  const { get, set } = await alone(t, { absolute: "1d" });
  const members = { ttl: "soon", _ts: 1, _etag: "x", _session: { end: 1 }, nothing: null, list: [1, { ttl: 2 }] };
  await set("a", sessionOf(members));
  const { cookie, ...found } = (await get("a"))!;
  assert.deepEqual(found, members);
  await set("a", { cookie, ...found, ttl: -5 } as SessionData);
  assert.deepEqual({ ...(await get("a")), cookie: null }, { ...members, ttl: -5, cookie: null });
});

test("an imported session has the time of its cookie from its first request on", async (t) => {
  const { db, get, touch } = await alone(t);
  const sessions = db.collection("sessions");
  await sessions.create("a", { ...sessionOf({ user: "ann" }), ttl: 77 });
  await touch("a", (await get("a"))!);
  assert.equal((await sessions.get("a"))!.value.ttl, 600);
  await sessions.create("b", { cookie: { originalMaxAge: null, httpOnly: true, path: "/" }, ttl: 77 });
  await Promise.all([(await get("b"))!, (await get("b"))!].map((session) => touch("b", session)));
  assert.equal((await sessions.get("b"))!.rule, "collection");
});

test("a cookie says when its session ends", async (t) => {
  const { db, get, set, touch } = await alone(t);
  const cookie = { originalMaxAge: 10 * minute, expires: new Date(0) };
  await set("a", { cookie });
  await db.advance("5m");
  await touch("a", { cookie });
  assert.deepEqual((await get("a"))!.cookie.expires, new Date((await db.now()).getTime() + 10 * minute));
});

test("lengths of time that can't be are refused", async (t) => {
  const { db, set } = await alone(t, { absolute: 0 });
  for (const options of [{ touchAfter: 1.5 }, { absolute: "soon" }, { absolute: NaN }]) {
    assert.throws(() => new LapseStore({ collection: db.collection("sessions"), ...options }), RangeError);
  }
  await assert.rejects(set("a", sessionOf({})), { error: "bad_ttl" });
});
