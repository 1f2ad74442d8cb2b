// What an application with the store of docs/recipes.md, which comes before, does.
import express from "express";
import { setTimeout as sleep } from "node:timers/promises";

await lapse("collection.create.sessions", { defaultTtl: -1 });
const app = express();
const store = new LapseStore();
const failed = [];
app.use(session({ store, secret: "x", resave: false, saveUninitialized: false, cookie: { maxAge: 600_000 } }));

let arrived, gate;
app.get("/:do", async (req, res) => {
  if (req.query.slow) {
    arrived();
    await gate;
  }
  switch (req.params.do) {
    case "login":
    case "put":
      req.session.user = req.query.user;
      break;
    case "logout":
      await new Promise((done, fail) => req.session.destroy((e) => (e ? fail(e) : done())));
  }
  res.end(req.session?.user ?? "nobody");
});
app.use((e, req, res, next) => failed.push(e.error)); // the reply is on its way
const server = app.listen(0, "127.0.0.1");
await new Promise((listening) => server.on("listening", listening));

let cookie = "";
const sid = () => token(decodeURIComponent(cookie).match(/=s:(.*)\./)[1]);
async function get(path) {
  const r = await fetch(`http://127.0.0.1:${server.address().port}/${path}`, { headers: { cookie } });
  const set = r.headers.get("set-cookie");
  if (set && path.startsWith("login")) cookie = set.split(";")[0];
  return r.text();
}

// meet does something while a request waits between its load and its save.
async function meet(slow, other) {
  let open;
  const here = new Promise((resolve) => (arrived = resolve));
  gate = new Promise((resolve) => (open = resolve));
  const waiting = get(slow);
  await here;
  await other();
  open();
  return waiting;
}

await get("login?user=ann");
console.log("login:", await get("show"));
await meet("put?user=bob&slow=1", () => get("logout"));
console.log("logout during a request:", await get("show"), failed.join());
await get("login?user=ann");
await meet("show?slow=1", () => get("logout"));
console.log("logout during a read:", await get("show"), failed.join());
await get("login?user=ann");
await meet("put?user=cy&slow=1", () => get("put?user=bob"));
console.log("two tabs:", await get("show"), failed.join());
await meet("put?user=di&slow=1", () => lapse(`document.touch.sessions.${sid()}`)); // no change
console.log("a touch and a change:", await get("show"), failed.join());
await new Promise((done) => store.set("short", { cookie: { originalMaxAge: 1000 } }, done));
while (await new Promise((done) => store.get("short", (e, found) => done(found)))) await sleep(100);
console.log("expired");
server.close();
server.closeAllConnections();
await nc.drain();
