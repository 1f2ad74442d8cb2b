// An application whose sessions are in lapse. It prints its URL.
import { connect } from "@nats-io/transport-node";
import express from "express";
import session from "express-session";
import { Lapse } from "@lapsedb/lapse";
import { LapseStore } from "@lapsedb/lapse/express";

async function main(): Promise<void> {
  const lapse = new Lapse(await connect({ servers: process.env.NATS_URL }));
  await lapse.createCollection("sessions", { defaultTtl: "1d" });
  const store = new LapseStore({ collection: lapse.collection("sessions") });
  const app = express();
  app.use(session({ store, secret: "x", resave: false, saveUninitialized: false, cookie: { httpOnly: false } }));
  let loggedOut: () => void;
  const logout = new Promise<void>((resolve) => (loggedOut = resolve));
  let arrived: () => void;
  const arrival = new Promise<void>((resolve) => (arrived = resolve));
  app.get("/:do", async (req: any, res: any) => {
    switch (req.params.do) {
      case "login":
        req.session.user = "ann";
        break;
      case "remember":
        req.session.cookie.maxAge = 3_600_000;
        req.session.remembered = true; // express-session sends no cookie for a change of maxAge alone
        break;
      case "forget":
        req.session.cookie.maxAge = 0;
        req.session.user = undefined;
        break;
      case "rename": // while the other tab logs out
        req.session.user = "bob";
        arrived();
        await logout;
        break;
      case "logout":
        await arrival;
        await new Promise((done) => req.session.destroy(done));
        loggedOut();
    }
    res.send(`user: ${req.session?.user ?? "nobody"}`);
  });
  app.use((_err: unknown, _req: unknown, _res: unknown, _next: unknown) => {}); // the reply is on its way
  const server = app.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
}

void main();
