import com.azure.cosmos.*;
import com.azure.cosmos.models.*;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * The samples of Cosmos DB's page about time to live in their order, the nine cases of defaultTtl
 * and ttl, and what else programs use, against a gateway whose clock is moved. Usage: java
 * Samples.java URL, with the account key in $COSMOS_KEY.
 */
class Samples {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String NAME = "CO18009186470";
    static final PartitionKey CUSTOMER = new PartitionKey(NAME);
    static final CosmosItemRequestOptions NO_OPTIONS = new CosmosItemRequestOptions();
    static String endpoint;
    static CosmosDatabase database;
    static int containers;

    interface Call { void run() throws Exception; }

    static void equal(Object want, Object got, Object... about) {
        if (!String.valueOf(want).equals(String.valueOf(got))) {
            throw new AssertionError(got + ", want " + want + ": " + Arrays.toString(about));
        }
    }

    /** Checks that a call fails with a status and substatus. */
    static void refused(int status, int substatus, Call call) throws Exception {
        try {
            call.run();
        } catch (CosmosException e) {
            equal(status + "/" + substatus, e.getStatusCode() + "/" + e.getSubStatusCode(), e.getShortMessage());
            return;
        }
        throw new AssertionError("no error, want the status " + status);
    }

    static void refused(int status, Call call) throws Exception { refused(status, 0, call); }

    static void advance(int seconds) throws Exception {
        var request = java.net.http.HttpRequest.newBuilder(URI.create(endpoint + "/_lapse/clock"))
            .header("content-type", "application/json").POST(BodyPublishers.ofString("{\"advance\":" + seconds + "}")).build();
        equal(200, HttpClient.newHttpClient().send(request, BodyHandlers.discarding()).statusCode());
    }

    static CosmosContainer create(CosmosContainerProperties properties, Integer defaultTtl) {
        properties.setDefaultTimeToLiveInSeconds(defaultTtl);
        database.createContainer(properties);
        return database.getContainer(properties.getId());
    }

    static CosmosContainer create(Integer defaultTtl) {
        return create(new CosmosContainerProperties("c" + ++containers, "/customerId"), defaultTtl);
    }

    /** An item of the customer, with more members: names and values in turn. */
    static ObjectNode item(String id, Object... more) {
        var item = JSON.createObjectNode().put("id", id).put("customerId", NAME);
        for (int i = 0; i < more.length; i += 2) {
            item.set((String) more[i], JSON.valueToTree(more[i + 1]));
        }
        return item;
    }

    static JsonNode read(CosmosContainer c, String id) { return c.readItem(id, CUSTOMER, JsonNode.class).getItem(); }

    static List<JsonNode> query(CosmosContainer c, String query, CosmosQueryRequestOptions options) {
        return c.queryItems(query, options, JsonNode.class).stream().toList();
    }

    static List<JsonNode> query(CosmosContainer c, String query) { return query(c, query, new CosmosQueryRequestOptions()); }

    static void samples() throws Exception {
        var c = create(-1);
        c.createItem(item("SO05", "ttl", 60 * 60 * 24 * 30));
        equal(2592000, read(c, "SO05").get("ttl"));
        c.replaceItem(item("SO05", "ttl", 54000), "SO05", CUSTOMER, NO_OPTIONS);
        c.replaceItem(item("SO05"), "SO05", CUSTOMER, NO_OPTIONS);
        advance(60 * 60 * 24 * 60);
        read(c, "SO05");
        var definition = c.read().getProperties();
        definition.setDefaultTimeToLiveInSeconds(null);
        equal(null, c.replace(definition).getProperties().getDefaultTimeToLiveInSeconds());
        c.replaceItem(item("SO05", "ttl", 1), "SO05", CUSTOMER, NO_OPTIONS);
        advance(10);
        read(c, "SO05");
    }

    /** By defaultTtl and ttl, after how many seconds an item expires; null is never or none. */
    static final Integer[][] TABLE = {
        {null, null, null}, {null, -1, null}, {null, 30, null},
        {-1, null, null}, {-1, -1, null}, {-1, 30, 30},
        {60, null, 60}, {60, -1, null}, {60, 30, 30},
    };

    static void lives(CosmosContainer c, boolean want, Integer[] row) throws Exception {
        equal(want ? "[\"a\"]" : "[]", query(c, "SELECT VALUE c.id FROM c"), (Object[]) row);
        equal(want ? "[1]" : "[0]", query(c, "SELECT VALUE COUNT(1) FROM c"), (Object[]) row);
        if (want) {
            read(c, "a");
        } else {
            refused(404, () -> read(c, "a"));
        }
    }

    static void nineCases() throws Exception {
        for (var row : TABLE) {
            var c = create(row[0]);
            c.createItem(row[1] == null ? item("a") : item("a", "ttl", row[1]));
            advance((row[2] == null ? 100 : row[2]) - 1);
            lives(c, true, row);
            advance(1);
            lives(c, row[2] == null, row);
            if (row[2] != null) {
                refused(404, () -> c.deleteItem("a", CUSTOMER, NO_OPTIONS));
                c.createItem(item("a"));
            }
        }
    }

    static void writes() throws Exception {
        var c = create(100);
        c.upsertItem(item("a", "n", 1));
        refused(409, () -> c.createItem(item("a")));
        refused(400, () -> c.createItem(item("b", "ttl", 0)));
        refused(400, 1001, () -> c.createItem(item("b"), new PartitionKey("other"), NO_OPTIONS));
        refused(404, 1003, () -> read(database.getContainer("none"), "a"));
        refused(412, () -> c.replaceItem(item("a"), "a", CUSTOMER, new CosmosItemRequestOptions().setIfMatchETag("1")));
        var etag = c.readItem("a", CUSTOMER, JsonNode.class).getETag();
        equal(304, c.readItem("a", CUSTOMER, new CosmosItemRequestOptions().setIfNoneMatchETag(etag), JsonNode.class).getStatusCode());
        advance(99);
        var patch = CosmosPatchOperations.create().increment("/n", 2).set("/ttl", 30);
        var condition = new CosmosPatchItemRequestOptions().setFilterPredicate("from c where c.n = 1");
        c.patchItem("a", CUSTOMER, patch, condition, JsonNode.class);
        equal(3, read(c, "a").get("n"));
        refused(412, () -> c.patchItem("a", CUSTOMER, patch, condition, JsonNode.class));
        var batch = CosmosBatch.createCosmosBatch(CUSTOMER);
        batch.createItemOperation(item("b"));
        batch.createItemOperation(item("a"));
        var failed = c.executeCosmosBatch(batch);
        equal("409 [424, 409]", failed.getStatusCode() + " " + failed.getResults().stream().map(r -> r.getStatusCode()).toList());
        var operations = Stream.of("b", "b").map(id -> CosmosBulkOperations.getCreateItemOperation(item(id), CUSTOMER)).toList();
        var statuses = new TreeSet<Integer>();
        c.executeBulkOperations(operations).forEach(r -> statuses.add(r.getResponse().getStatusCode()));
        equal("[201, 409]", statuses);
        advance(30);
        equal("[\"b\"]", query(c, "SELECT VALUE c.id FROM c"));
        database.createContainer("throughput", "/k", ThroughputProperties.createManualThroughput(400));
        var changed = database.getContainer("throughput").replaceThroughput(ThroughputProperties.createManualThroughput(500));
        equal(500, changed.getProperties().getManualThroughput());
    }

    static void queries() throws Exception {
        var c = create(-1);
        var identities = new ArrayList<>(List.of(new CosmosItemIdentity(CUSTOMER, "none")));
        for (int n = 0; n < 25; n++) {
            c.createItem(item("o" + n, "customerId", "C" + n % 3, "n", n));
            identities.add(new CosmosItemIdentity(new PartitionKey("C" + n % 3), "o" + n));
        }
        equal(25, c.readMany(identities, JsonNode.class).getResults().size());
        for (var q : Map.of(
            "SELECT VALUE AVG(c.n) FROM c", "[12]",
            "SELECT COUNT(1) AS n, MAX(c.n) AS m FROM c", "[{\"n\":25,\"m\":24}]",
            "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 4", "[3, 4, 5, 6]",
            "SELECT TOP 2 VALUE c.n FROM c ORDER BY c.n DESC", "[24, 23]",
            "SELECT DISTINCT VALUE c.customerId FROM c", "[\"C0\", \"C1\", \"C2\"]",
            "SELECT c.customerId AS k, COUNT(1) AS n FROM c GROUP BY c.customerId",
            "[{\"k\":\"C0\",\"n\":9}, {\"k\":\"C1\",\"n\":8}, {\"k\":\"C2\",\"n\":8}]").entrySet()) {
            equal(q.getValue(), query(c, q.getKey()), q.getKey());
        }
        var few = new SqlQuerySpec("SELECT VALUE c.n FROM c WHERE c.n < @n ORDER BY c.n", new SqlParameter("@n", 9));
        equal("[1, 4, 7]", c.queryItems(few, new CosmosQueryRequestOptions().setPartitionKey(new PartitionKey("C1")), Integer.class).stream().toList());
        var sizes = new ArrayList<Integer>();
        String token = null;
        do { // each page is of a query of its own
            for (var page : c.queryItems("SELECT * FROM c ORDER BY c.n", new CosmosQueryRequestOptions(), JsonNode.class).iterableByPage(token, 10)) {
                sizes.add(page.getResults().size());
                token = page.getContinuationToken();
                break;
            }
        } while (token != null);
        equal("[10, 10, 5]", sizes);
        var metrics = new CosmosQueryRequestOptions().setQueryMetricsEnabled(true).setIndexMetricsEnabled(true);
        equal("[3]", query(c, "SELECT VALUE c.n FROM c WHERE c.n = 3", metrics));
        var indexed = new CosmosContainerProperties("indexed", "/customerId");
        indexed.setIndexingPolicy(new IndexingPolicy().setIncludedPaths(List.of(new IncludedPath("/n/?"))));
        for (var page : create(indexed, null).queryItems("SELECT * FROM c WHERE c.n = 3", metrics, JsonNode.class).iterableByPage()) {
            equal(true, page.getCosmosDiagnostics().toString().contains("/n/?"), page.getCosmosDiagnostics());
        }
        refused(400, () -> query(c, "SELECT VALUE udf.f(c) FROM c"));
    }

    static void keys() {
        var definition = new PartitionKeyDefinition().setPaths(List.of("/t", "/u")).setKind(PartitionKind.MULTI_HASH).setVersion(PartitionKeyDefinitionVersion.V2);
        var c = create(new CosmosContainerProperties("nested", definition), -1);
        for (var key : List.of("a1", "a2", "b1")) {
            c.upsertItem(item("i", "t", key.substring(0, 1), "u", key.substring(1)));
        }
        equal("\"2\"", c.readItem("i", new PartitionKeyBuilder().add("a").add("2").build(), JsonNode.class).getItem().get("u"));
        var prefix = new CosmosQueryRequestOptions().setPartitionKey(new PartitionKeyBuilder().add("a").build());
        equal("[\"1\", \"2\"]", query(c, "SELECT VALUE c.u FROM c", prefix));
    }

    /** Reads a change feed to its end, and returns the continuation. */
    static String changes(CosmosContainer c, CosmosChangeFeedRequestOptions options, List<JsonNode> rows) {
        String token = null;
        for (var page : c.queryChangeFeed(options, JsonNode.class).iterableByPage()) {
            rows.addAll(page.getResults());
            token = page.getContinuationToken();
        }
        return token;
    }

    static void feeds() throws Exception {
        var c = create(-1);
        c.upsertItem(item("a", "n", 1));
        c.upsertItem(item("a", "n", 2));
        c.createItem(item("due", "ttl", 60, "n", 3));
        var rows = new ArrayList<JsonNode>();
        changes(c, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forFullRange()), rows);
        changes(c, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forLogicalPartition(CUSTOMER)), rows);
        equal("[2, 3, 2, 3]", rows.stream().map(r -> r.get("n")).toList());
        rows.clear();
        var now = changes(c, CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()).allVersionsAndDeletes(), rows);
        c.upsertItem(item("a", "n", 4));
        advance(60);
        c.deleteItem("a", CUSTOMER, NO_OPTIONS);
        changes(c, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(now).allVersionsAndDeletes(), rows);
        var seen = rows.stream().map(r -> r.at("/metadata/operationType").asText() + r.at("/metadata/timeToLiveExpired").asText());
        equal("[replace, deletetrue, delete]", seen.toList());
        equal("due", rows.get(1).at("/previous/id").asText());
    }

    /** The change feed processor, with its leases in a container. */
    static void processor() throws Exception {
        var c = create(-1);
        create(new CosmosContainerProperties("leases", "/id"), null);
        for (int n = 0; n < 3; n++) {
            c.createItem(item("o" + n));
        }
        var got = new LinkedBlockingQueue<String>();
        try (var client = builder().contentResponseOnWriteEnabled(true).buildAsyncClient()) {
            var async = client.getDatabase("Sales_DB");
            var processor = new ChangeFeedProcessorBuilder().hostName("h").feedContainer(async.getContainer(c.getId())).leaseContainer(async.getContainer("leases"))
                .options(new ChangeFeedProcessorOptions().setStartFromBeginning(true).setFeedPollDelay(Duration.ofMillis(50)))
                .handleChanges(docs -> docs.forEach(d -> got.add(d.get("id").asText()))).buildChangeFeedProcessor();
            processor.start().block();
            for (int n = 0; n < 4; n++) {
                if (n == 3) {
                    c.createItem(item("o3"));
                }
                equal("o" + n, got.poll(60, TimeUnit.SECONDS));
            }
            processor.stop().block();
        }
    }

    static CosmosClientBuilder builder() { return new CosmosClientBuilder().endpoint(endpoint).key(System.getenv("COSMOS_KEY")).gatewayMode(); }

    public static void main(String[] args) throws Exception {
        endpoint = args[0];
        try (var client = builder().buildClient()) {
            client.createDatabase("Sales_DB");
            database = client.getDatabase("Sales_DB");
            samples();
            nineCases();
            writes();
            queries();
            keys();
            feeds();
            processor();
            database.delete();
            refused(404, () -> database.read());
        }
        System.exit(0); // threads of the SDK remain
    }
}
