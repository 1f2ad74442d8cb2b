"""The samples of Cosmos DB's page about time to live in their order, the nine cases of
defaultTtl and ttl, and what else programs use, against a gateway whose clock is moved.

Usage: python samples.py URL [CERT], with the account key in $COSMOS_KEY.
"""

import asyncio
import os
import sys

import requests
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient, PartitionKey, documents, exceptions
from azure.cosmos.aio import CosmosClient as AsyncClient

endpoint, trusted = [*sys.argv[1:], ""][:2]
customer = "CO18009186470"
options = {}
if trusted:
    options["ssl_config"] = documents.SSLConfiguration()
    options["ssl_config"].SSLCaCerts = trusted
client = CosmosClient(endpoint, os.environ["COSMOS_KEY"], **options)
database = client.create_database("Sales_DB")
containers = 0


def equal(got, want, about=""):
    assert got == want, f"{got!r}, want {want!r}: {about}"


def refused(status, call, *args, **kwargs):
    """Checks that a call fails with a status, and returns the error."""
    try:
        call(*args, **kwargs)
    except HttpResponseError as e:
        equal(e.status_code, status, e)
        return e
    raise AssertionError(f"no error, want the status {status}")


def advance(seconds):
    reply = requests.post(f"{endpoint}/_lapse/clock", json={"advance": seconds}, verify=trusted or True)
    equal(reply.status_code, 200, reply.text)


def create(default_ttl=None, key=None):
    global containers
    containers += 1
    return database.create_container(f"c{containers}", key or PartitionKey("/customerId"), default_ttl=default_ttl)


def query(container, text, **kwargs):
    kwargs.setdefault("enable_cross_partition_query", True)
    return list(container.query_items(text, **kwargs))


def changes(container, **kwargs):
    """Reads a change feed to its end, and returns the rows and the continuation."""
    rows = list(container.query_items_change_feed(**kwargs))
    return rows, container.client_connection.last_response_headers["etag"]


def samples():
    c = create(-1)
    c.create_item({"id": "SO05", "customerId": customer, "ttl": 60 * 60 * 24 * 30})
    item = c.read_item("SO05", customer)
    equal(item["ttl"], 2592000)
    item = c.replace_item(item, {**item, "ttl": 54000})
    del item["ttl"]
    item = c.replace_item(item, item)
    assert "ttl" not in item
    advance(60 * 60 * 24 * 60)
    c.read_item("SO05", customer)
    database.replace_container(c, PartitionKey("/customerId"))
    assert "defaultTtl" not in c.read()
    c.replace_item(item, {**item, "ttl": 1})
    advance(10)
    c.read_item("SO05", customer)


# By defaultTtl and ttl, after how many seconds an item expires; None is never or none.
TABLE = [
    *((None, None, None), (None, -1, None), (None, 30, None)),
    *((-1, None, None), (-1, -1, None), (-1, 30, 30)),
    *((60, None, 60), (60, -1, None), (60, 30, 30)),
]


def lives(c, want, about):
    equal(query(c, "SELECT VALUE c.id FROM c"), ["a"] if want else [], about)
    equal(query(c, "SELECT VALUE COUNT(1) FROM c"), [int(want)], about)
    if want:
        c.read_item("a", customer)
    else:
        refused(404, c.read_item, "a", customer)


def nine_cases():
    for row in TABLE:
        default_ttl, ttl, after = row
        c = create(default_ttl)
        item = {"id": "a", "customerId": customer, **({} if ttl is None else {"ttl": ttl})}
        c.create_item(item)
        advance((after or 100) - 1)
        lives(c, True, row)
        advance(1)
        lives(c, after is None, row)
        if after:
            refused(404, c.delete_item, "a", customer)
            c.create_item(item)


def writes():
    c = create(100)
    item = {"id": "a", "customerId": customer, "n": 1}
    etag = c.upsert_item(item)["_etag"]
    assert isinstance(refused(409, c.create_item, item), exceptions.CosmosResourceExistsError)
    refused(400, c.create_item, {**item, "id": "b", "ttl": 0})
    if_not = {"match_condition": MatchConditions.IfNotModified}
    refused(412, c.replace_item, "a", item, etag="1", **if_not)
    assert not c.read_item("a", customer, etag=etag, match_condition=MatchConditions.IfModified)  # a 304
    c.replace_item("a", item, etag=etag, **if_not)
    equal(refused(404, database.get_container_client("none").read_item, "a", customer).sub_status, 1003)
    advance(99)
    patch = [{"op": "incr", "path": "/n", "value": 2}, {"op": "set", "path": "/ttl", "value": 30}]
    equal(c.patch_item("a", customer, patch, filter_predicate="from c where c.n = 1")["n"], 3)
    refused(412, c.patch_item, "a", customer, patch, filter_predicate="from c where c.n = 1")
    b = {"id": "b", "customerId": customer}
    results = c.execute_item_batch([("create", (b,)), ("read", ("a",)), ("patch", ("b", patch[1:]))], customer)
    equal([r["statusCode"] for r in results], [201, 200, 200])
    failed = refused(409, c.execute_item_batch, [("create", ({**b, "id": "c"},)), ("create", (b,))], customer)
    equal([failed.error_index, [r["statusCode"] for r in failed.operation_responses]], [1, [424, 409]])
    advance(30)
    equal(query(c, "SELECT * FROM c"), [])


def queries():
    c = create(-1)
    for n in range(25):
        c.create_item({"id": f"o{n}", "customerId": f"C{n % 3}", "n": n, **({"ttl": 60} if n == 20 else {})})
    pairs = [(f"o{n}", f"C{n % 3}") for n in range(25)]
    equal(sorted(i["n"] for i in c.read_items([*pairs, ("none", "C1")])), [*range(25)])
    equal(len(list(c.read_all_items(max_item_count=7))), 25)
    sums = "SELECT c.customerId, COUNT(1) AS n, SUM(c.n) AS s FROM c GROUP BY c.customerId"
    for text, want in {
        "SELECT VALUE AVG(c.n) FROM c": [12],
        "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 4": [3, 4, 5, 6],
        "SELECT TOP 2 VALUE c.n FROM c ORDER BY c.n DESC": [24, 23],
        "SELECT DISTINCT VALUE c.customerId FROM c": ["C0", "C1", "C2"],
        sums: [{"customerId": f"C{k}", "n": n, "s": s} for k, n, s in ((0, 9, 108), (1, 8, 92), (2, 8, 100))],
    }.items():
        equal(query(c, text), want, text)
    few = {"parameters": [{"name": "@n", "value": 9}], "partition_key": "C1"}
    equal(query(c, "SELECT VALUE c.n FROM c WHERE c.n < @n", **few), [1, 4, 7])
    token, pages = None, []
    for between in (60, 0, 0):  # o20 expires after the first page
        pager = c.query_items("SELECT VALUE c.n FROM c ORDER BY c.n", enable_cross_partition_query=True, max_item_count=10)
        pager = pager.by_page(token)
        pages.append(list(next(pager)))
        token = pager.continuation_token
        advance(between)
    equal([pages, token], [[[*range(10)], [*range(10, 20)], [*range(21, 25)]], None])
    refused(400, query, c, "SELECT VALUE udf.f(c) FROM c")


def keys():
    c = create(-1, PartitionKey(["/t", "/u"], kind="MultiHash"))
    for t, u in (("a", "1"), ("a", "2"), ("b", "1")):
        c.upsert_item({"id": "i", "t": t, "u": u})
    equal(c.read_item("i", ["a", "2"])["u"], "2")
    equal(query(c, "SELECT VALUE c.u FROM c", partition_key=["a"], enable_cross_partition_query=None), ["1", "2"])
    c = create(-1, PartitionKey("/id"))
    equal([c.upsert_item({"id": "x", "n": n})["n"] for n in (1, 2)], [1, 2])
    equal([c.read_item("x", "x")["n"], query(c, "SELECT VALUE COUNT(1) FROM c")], [2, [1]])


def feeds():
    c = create(-1)
    for n in (1, 2):
        c.upsert_item({"id": "a", "customerId": customer, "n": n})
    c.create_item({"id": "due", "customerId": customer, "ttl": 60, "n": 3})
    rows, latest = changes(c, start_time="Beginning")
    equal([r["n"] for r in rows], [2, 3])
    all_versions = {"mode": "AllVersionsAndDeletes"}
    rows, position = changes(c, **all_versions)
    equal(rows, [])
    c.upsert_item({"id": "a", "customerId": customer, "n": 4})
    c.create_item({"id": "b", "customerId": "other"})
    advance(60)
    c.delete_item("a", customer)
    rows, _ = changes(c, continuation=position, **all_versions)
    seen = [(r["metadata"]["operationType"], r["metadata"].get("timeToLiveExpired", False)) for r in rows]
    equal(seen, [("replace", False), ("create", False), ("delete", True), ("delete", False)])
    equal(rows[2]["previous"]["id"], "due")
    rows, _ = changes(c, continuation=latest)
    equal([r["id"] for r in rows], ["b"])
    rows, _ = changes(c, start_time="Beginning", partition_key="other")
    equal([r["id"] for r in rows], ["b"])


async def asynchronous():
    async with AsyncClient(endpoint, os.environ["COSMOS_KEY"]) as aio:  # accepts any certificate of localhost
        c = aio.get_database_client("Sales_DB").get_container_client(create(60).id)
        for n in range(5):
            await c.upsert_item({"id": f"o{n}", "customerId": f"C{n}", "n": n})
        equal([n async for n in c.query_items("SELECT VALUE c.n FROM c ORDER BY c.n", max_item_count=2)], [*range(5)])
        advance(60)
        equal([i async for i in c.read_all_items()], [])


for scene in (samples, nine_cases, writes, queries, keys, feeds):
    scene()
asyncio.run(asynchronous())
client.delete_database("Sales_DB")
refused(404, database.read)
