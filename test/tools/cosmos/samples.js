// The samples of Cosmos DB's page about time to live in their order, the nine cases of
// defaultTtl and ttl, and what else programs use, against a gateway whose clock is moved.
// Usage: node samples.js URL, with the account key in $COSMOS_KEY.
const assert = require("node:assert/strict");
const { CosmosClient, BulkOperationType, ChangeFeedStartFrom, ChangeFeedMode } = require("@azure/cosmos");

const endpoint = process.argv[2];
const client = new CosmosClient({ endpoint, key: process.env.COSMOS_KEY });
const customer = "CO18009186470";

async function advance(seconds, database) {
  const reply = await fetch(`${endpoint}/_lapse/clock${database ? `?database=${database}` : ""}`,
    { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ advance: seconds }) });
  assert.equal(reply.status, 200, await reply.clone().text());
  return (await reply.json()).now;
}

// refused checks that a call fails with a status.
const refused = (status, call) => assert.rejects(call, (e) => (e.code === status || assert.fail(`${e.code}: ${e.message}, want ${status}`)));

const ids = async (container, query, options) => (await container.items.query(query, options).fetchAll()).resources.map((r) => r.id ?? r);

let containers = 0;
async function create(database, defaultTtl, more = {}) {
  const id = `c${++containers}`;
  return (await database.containers.create({ id, partitionKey: { paths: ["/customerId"] }, ...(defaultTtl === undefined ? {} : { defaultTtl }), ...more })).container;
}

async function samples(database) {
  const container = await create(database, -1);
  const order = { id: "SO05", customerId: customer, ttl: 60 * 60 * 24 * 30 };
  await container.items.create(order);
  const { resource: read, etag } = await container.item("SO05", customer).read();
  assert.equal(read.ttl, 2592000);
  assert.equal(read._etag, etag);
  const { resource: changed } = await container.item("SO05", customer).replace({ ...read, ttl: 54000 });
  assert.equal(changed.ttl, 54000);
  const { ttl, ...never } = changed;
  const { resource: kept } = await container.item("SO05", customer).replace(never);
  assert.equal(kept.ttl, undefined);
  await advance(60 * 60 * 24 * 60);
  assert.equal((await container.item("SO05", customer).read()).statusCode, 200);
  const { resource: definition } = await container.read();
  delete definition.defaultTtl;
  assert.equal((await container.replace(definition)).resource.defaultTtl, undefined);
  await container.item("SO05", customer).replace({ ...kept, ttl: 1 });
  await advance(10);
  assert.equal((await container.item("SO05", customer).read()).statusCode, 200);
}

// table has, by defaultTtl and ttl, after how many seconds an item expires; null is never.
const table = [
  [undefined, undefined, null], [undefined, -1, null], [undefined, 30, null],
  [-1, undefined, null], [-1, -1, null], [-1, 30, 30],
  [60, undefined, 60], [60, -1, null], [60, 30, 30],
];

async function nineCases(database) {
  for (const [defaultTtl, ttl, after] of table) {
    const container = await create(database, defaultTtl);
    await container.items.create({ id: "a", customerId: customer, ...(ttl === undefined ? {} : { ttl }) });
    const item = container.item("a", customer);
    const lives = async (want, when) => {
      const what = `defaultTtl ${defaultTtl}, ttl ${ttl}, ${when}`;
      assert.equal((await item.read()).statusCode, want ? 200 : 404, what);
      assert.deepEqual(await ids(container, "SELECT * FROM c"), want ? ["a"] : [], what);
      assert.deepEqual(await ids(container, "SELECT VALUE COUNT(1) FROM c"), [want ? 1 : 0], what);
    };
    await advance((after ?? 100) - 1);
    await lives(true, "a second before");
    await advance(1);
    await lives(after === null, "at the deadline");
    if (after !== null) {
      await refused(404, item.replace({ id: "a", customerId: customer }));
      await refused(404, item.delete());
      assert.equal((await container.items.create({ id: "a", customerId: customer })).statusCode, 201);
    }
  }
}

async function wrongValues(database) {
  const container = await create(database, -1);
  for (const ttl of [0, -2, 1.5, "10", 2147483648]) {
    await refused(400, container.items.create({ id: "a", customerId: customer, ttl }));
  }
  for (const defaultTtl of [0, -2, 2147483648]) {
    await refused(400, create(database, defaultTtl));
  }
  await refused(400, create(database, 60, { indexingPolicy: { indexingMode: "none", automatic: false } }));
  const { resource: definition } = await container.read();
  await refused(400, container.replace({ ...definition, partitionKey: { paths: ["/other"] } }));
  await refused(409, database.containers.create({ id: container.id, partitionKey: "/id" }));
  await refused(404, database.container("none").read());
  await refused(400, container.items.query("SELECT udf.f(c) FROM c", { partitionKey: customer }).fetchAll());
}

async function writes(database) {
  const container = await create(database, 100);
  const item = container.item("a", customer);
  assert.equal((await container.items.upsert({ id: "a", customerId: customer, n: 1, tags: ["x"] })).statusCode, 201);
  assert.equal((await container.items.upsert({ id: "a", customerId: customer, n: 1, tags: ["x"] })).statusCode, 200);
  await refused(409, container.items.create({ id: "a", customerId: customer }));
  const { etag } = await item.read();
  assert.equal((await item.read({ accessCondition: { type: "IfNoneMatch", condition: etag } })).statusCode, 304);
  await refused(412, item.replace({ id: "a", customerId: customer }, { accessCondition: { type: "IfMatch", condition: '"1"' } }));
  await advance(99);
  const { resource: patched } = await item.patch([
    { op: "incr", path: "/n", value: 2 }, { op: "add", path: "/tags/0", value: "w" }, { op: "set", path: "/a", value: { b: 1 } },
    { op: "move", from: "/a/b", path: "/c" }, { op: "remove", path: "/a" }]);
  assert.deepEqual([patched.n, patched.tags, patched.c, patched.a], [3, ["w", "x"], 1, undefined]);
  await advance(99);
  assert.equal((await item.patch([{ op: "set", path: "/ttl", value: 30 }])).resource.ttl, 30);
  await refused(412, item.patch({ condition: "from c where c.n = 4", operations: [{ op: "set", path: "/x", value: 1 }] }));
  await item.patch({ condition: "from c where c.n = 3", operations: [{ op: "set", path: "/x", value: 1 }] });
  await refused(400, item.patch([{ op: "replace", path: "/none", value: 1 }]));
  await refused(400, item.patch([{ op: "set", path: "/customerId", value: 1 }]));
  await advance(30);
  await refused(404, item.patch([{ op: "set", path: "/x", value: 1 }]));
}

async function batches(database) {
  const container = await create(database, -1);
  const create2 = (id, more) => ({ operationType: "Create", resourceBody: { id, customerId: customer, ...more } });
  const ok = await container.items.batch([create2("a", { ttl: 60 }), { operationType: "Upsert", resourceBody: { id: "b", customerId: customer } },
    { operationType: "Read", id: "a" }, { operationType: "Patch", id: "b", resourceBody: { operations: [{ op: "add", path: "/n", value: 1 }] } }], customer);
  assert.deepEqual(ok.result.map((r) => r.statusCode), [201, 201, 200, 200]);
  assert.equal(ok.result[3].resourceBody.n, 1);
  const failed = await container.items.batch([create2("c"), create2("a")], customer);
  assert.deepEqual([failed.code, failed.result.map((r) => r.statusCode)], [207, [424, 409]]);
  assert.equal((await container.item("c", customer).read()).statusCode, 404);
  const bulk = await container.items.bulk(["x", "y", "x"].map((id) => ({ operationType: BulkOperationType.Create, resourceBody: { id, customerId: `of ${id}` } })), { continueOnError: true });
  assert.deepEqual(bulk.map((r) => r.statusCode).sort(), [201, 201, 409]);
  const many = await container.items.executeBulkOperations([...Array(200).keys()].map((n) => ({ operationType: "Create", partitionKey: `C${n % 9}`, resourceBody: { id: `m${n % 199}`, customerId: `C${n % 9}` } })));
  assert.equal(many.filter((r) => r.response?.statusCode === 201).length, 200); // m0 is in two partitions
  await advance(60);
  assert.deepEqual(await ids(container, "SELECT * FROM c WHERE c.customerId = 'CO18009186470'"), ["b"]);
}

async function keys(database) {
  const container = await create(database, undefined);
  for (const value of ["a", "b:c", 1.5, true, null, undefined]) {
    await container.items.create({ id: "a:1", ...(value === undefined ? {} : { customerId: value }) });
    const { resource, statusCode } = await container.item("a:1", value).read();
    assert.equal(statusCode, 200, String(value));
    assert.equal(resource.customerId, value);
    assert.equal(resource.id, "a:1");
  }
  const long = "i".repeat(300);
  await container.items.create({ id: long, customerId: "long" });
  const { resource } = await container.item(long, "long").read();
  assert.equal(resource.id, long);
  assert.equal(resource._itemId, undefined);
  const nested = (await database.containers.create({ id: "nested", partitionKey: { paths: ["/t", "/u"], kind: "MultiHash", version: 2 } })).container;
  for (const [t, u] of [["a", 1], ["a", 2], ["b", 1]]) {
    await nested.items.create({ id: "i", t, u, sum: t + u });
  }
  assert.equal((await nested.item("i", ["a", 2]).read()).resource.sum, "a2");
  assert.deepEqual(await ids(nested, "SELECT VALUE c.sum FROM c", { partitionKey: ["a"] }), ["a1", "a2"]);
}

async function queries(database) {
  const container = await create(database, -1);
  for (let n = 0; n < 25; n++) {
    await container.items.create({ id: `o${n}`, customerId: `C${n % 3}`, n, ...(n === 20 ? { ttl: 60 } : {}) });
  }
  assert.deepEqual(await ids(container, { query: "SELECT VALUE c.n FROM c WHERE c.n >= @min ORDER BY c.n DESC", parameters: [{ name: "@min", value: 22 }] }), [24, 23, 22]);
  assert.deepEqual(await ids(container, "SELECT VALUE SUM(c.n) FROM c WHERE c.customerId = 'C1'"), [92]);
  assert.deepEqual((await ids(container, "SELECT DISTINCT VALUE c.customerId FROM c")).sort(), ["C0", "C1", "C2"]);
  assert.deepEqual(await ids(container, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 4"), [3, 4, 5, 6]);
  assert.deepEqual(await ids(container, "SELECT VALUE AVG(c.n) FROM c"), [12]);
  assert.deepEqual(await ids(container, "SELECT VALUE c.n FROM c ORDER BY c.n", { partitionKey: "C1" }), [1, 4, 7, 10, 13, 16, 19, 22]);
  const groups = container.items.query("SELECT c.customerId, COUNT(1) AS n FROM c GROUP BY c.customerId", { maxItemCount: 1 });
  for (const n of [9, 8, 8]) { // a page after the last one would have undefined rows
    assert.deepEqual((await groups.fetchNext()).resources.map((r) => r.n), [n]);
  }
  assert.equal(groups.hasMoreResults(), false);
  const { queryMetrics } = await container.items.query("SELECT * FROM c WHERE c.id = 'o1' AND c.customerId = 'C1'", { populateQueryMetrics: true }).fetchNext();
  assert.equal(queryMetrics[0].retrievedDocumentCount, 1);
  const pages = container.items.query("SELECT * FROM c ORDER BY c.n", { maxItemCount: 10 });
  const first = (await pages.fetchNext()).resources.map((r) => r.n);
  assert.equal(first.length, 10);
  await advance(60);
  const rest = [];
  while (pages.hasMoreResults()) {
    rest.push(...((await pages.fetchNext()).resources ?? []).map((r) => r.n));
  }
  assert.deepEqual([...first, ...rest], [...Array(25).keys()].filter((n) => n !== 20));
  const all = (await container.items.readAll({ maxItemCount: 7 }).fetchAll()).resources;
  assert.equal(all.length, 24);
}

async function feeds(database) {
  const container = await create(database, -1);
  await container.items.create({ id: "a", customerId: customer, n: 1 });
  await container.items.upsert({ id: "a", customerId: customer, n: 2 });
  await container.items.create({ id: "due", customerId: customer, ttl: 60, n: 3 });
  const latest = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning(), maxItemCount: 10 });
  assert.deepEqual((await latest.readNext()).result.map((r) => r.n), [2, 3]);
  assert.equal((await latest.readNext()).statusCode, 304);
  const all = container.items.getChangeFeedIterator({ changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes, changeFeedStartFrom: ChangeFeedStartFrom.Now(), maxItemCount: 50 });
  assert.equal((await all.readNext()).statusCode, 304);
  await container.items.upsert({ id: "a", customerId: customer, n: 4 });
  await advance(60);
  await container.item("a", customer).delete();
  const rows = (await all.readNext()).result;
  assert.deepEqual(rows.map((r) => [r.metadata.operationType, r.metadata.timeToLiveExpired ?? false]), [["replace", false], ["delete", true], ["delete", false]]);
  assert.equal(rows[0].current.n, 4);
  assert.equal(rows[1].previous.id, "due");
  assert.equal((await latest.readNext()).statusCode, 304);
  const other = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning("other") });
  await container.items.create({ id: "b", customerId: "other" });
  assert.deepEqual((await other.readNext()).result.map((r) => r.id), ["b"]);
}

async function main() {
  const { database } = await client.databases.create({ id: "Sales_DB" });
  assert.equal((await database.read()).resource.id, "Sales_DB");
  await refused(409, client.databases.create({ id: "sales-db" }));
  for (const scene of [samples, nineCases, wrongValues, writes, batches, keys, queries, feeds]) {
    try {
      await scene(database);
    } catch (e) {
      e.message = `${scene.name}: ${e.message}`;
      throw e;
    }
  }
  await database.delete();
  await refused(404, database.read());
  client.dispose();
}

main().then(() => console.log("ok"), (e) => { console.error(e); process.exit(1); });
