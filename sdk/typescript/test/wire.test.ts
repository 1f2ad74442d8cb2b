import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { generate, path } from "../scripts/wire.js";

test("the types of the wire are those of schema/asyncapi.yaml", () => {
  assert.equal(readFileSync(path, "utf8"), generate(), "run `npm run wire`");
});
