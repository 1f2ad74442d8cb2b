// Command azcosmos runs the samples of Cosmos DB's page about time to live in their order, the
// nine cases of defaultTtl and ttl, and what else programs use, against a gateway whose clock is
// moved. Usage: azcosmos URL, with the account key in $COSMOS_KEY.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var (
	endpoint   = os.Args[1]
	ctx        = context.Background()
	customer   = azcosmos.NewPartitionKeyString("CO18009186470")
	database   *azcosmos.DatabaseClient
	containers int
)

type object = map[string]any

// must returns the result of a call that must not fail.
func must[T any](result T, err error) T {
	check(err)
	return result
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// equal checks a value.
func equal(got, want any, about ...any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%v, want %v: %s", got, want, fmt.Sprint(about...)))
	}
}

// refused checks that a call failed with a status.
func refused(status int, err error) {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != status {
		panic(fmt.Sprintf("%v, want the status %d", err, status))
	}
}

func advance(seconds int) {
	reply := must(http.Post(endpoint+"/_lapse/clock", "application/json", strings.NewReader(fmt.Sprintf(`{"advance":%d}`, seconds))))
	equal(reply.StatusCode, 200)
	check(reply.Body.Close())
}

// create creates a container; defaultTTL 0 is none.
func create(defaultTTL int32, paths ...string) *azcosmos.ContainerClient {
	containers++
	p := azcosmos.ContainerProperties{ID: fmt.Sprint("c", containers), PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/customerId"}}}
	if paths != nil {
		p.PartitionKeyDefinition = azcosmos.PartitionKeyDefinition{Paths: paths, Kind: azcosmos.PartitionKeyKindMultiHash, Version: 2}
	}
	if defaultTTL != 0 {
		p.DefaultTimeToLive = &defaultTTL
	}
	must(database.CreateContainer(ctx, p, nil))
	return must(database.NewContainer(p.ID))
}

// text is an item of the customer, with more members, as JSON.
func text(id string, more object) []byte {
	item := object{"id": id, "customerId": "CO18009186470"}
	for name, value := range more {
		item[name] = value
	}
	return must(json.Marshal(item))
}

func read(body []byte) (item object) {
	check(json.Unmarshal(body, &item))
	return item
}

// rows returns the rows of a query, and the sizes of its pages.
func rows(c *azcosmos.ContainerClient, query string, key azcosmos.PartitionKey, o *azcosmos.QueryOptions) (all []string, sizes []int) {
	for pager := c.NewQueryItemsPager(query, key, o); pager.More(); {
		page := must(pager.NextPage(ctx))
		for _, row := range page.Items {
			all = append(all, string(row))
		}
		sizes = append(sizes, len(page.Items))
	}
	return all, sizes
}

func samples() {
	c := create(-1)
	must(c.CreateItem(ctx, customer, text("SO05", object{"ttl": 60 * 60 * 24 * 30}), nil))
	found := must(c.ReadItem(ctx, customer, "SO05", nil))
	equal(read(found.Value)["ttl"], 2592000.0)
	equal(read(found.Value)["_etag"], string(found.ETag))
	must(c.ReplaceItem(ctx, customer, "SO05", text("SO05", object{"ttl": 54000}), nil))
	must(c.ReplaceItem(ctx, customer, "SO05", text("SO05", nil), nil))
	advance(60 * 60 * 24 * 60)
	must(c.ReadItem(ctx, customer, "SO05", nil))
	definition := *must(c.Read(ctx, nil)).ContainerProperties
	definition.DefaultTimeToLive = nil
	equal(must(c.Replace(ctx, definition, nil)).ContainerProperties.DefaultTimeToLive, (*int32)(nil))
	must(c.ReplaceItem(ctx, customer, "SO05", text("SO05", object{"ttl": 1}), nil))
	advance(10)
	must(c.ReadItem(ctx, customer, "SO05", nil))
}

// table has, by defaultTtl and ttl, after how many seconds an item expires; 0 is never or none.
var table = [][3]int{{0, 0, 0}, {0, -1, 0}, {0, 30, 0}, {-1, 0, 0}, {-1, -1, 0}, {-1, 30, 30}, {60, 0, 60}, {60, -1, 0}, {60, 30, 30}}

func nineCases() {
	for _, row := range table {
		c, ttl := create(int32(row[0])), object{}
		if row[1] != 0 {
			ttl["ttl"] = row[1]
		}
		must(c.CreateItem(ctx, customer, text("a", ttl), nil))
		lives := func(want int) {
			_, err := c.ReadItem(ctx, customer, "a", nil)
			if want == 0 {
				refused(404, err)
			} else {
				check(err)
			}
			count, _ := rows(c, "SELECT VALUE COUNT(1) FROM c", customer, nil)
			equal(count, []string{fmt.Sprint(want)}, row)
			_, sizes := rows(c, "SELECT * FROM c", azcosmos.NewPartitionKey(), nil)
			equal(sizes[0], want, row)
		}
		if row[2] == 0 {
			advance(100)
			lives(1)
			continue
		}
		advance(row[2] - 1)
		lives(1)
		advance(1)
		lives(0)
		_, err := c.DeleteItem(ctx, customer, "a", nil)
		refused(404, err)
		must(c.CreateItem(ctx, customer, text("a", nil), nil))
	}
}

func writes() {
	c := create(100)
	must(c.UpsertItem(ctx, customer, text("a", object{"n": 1}), nil))
	_, err := c.CreateItem(ctx, customer, text("a", nil), nil)
	refused(409, err)
	_, err = c.CreateItem(ctx, customer, text("b", object{"ttl": 0}), nil)
	refused(400, err)
	_, err = c.ReplaceItem(ctx, customer, "a", text("a", nil), &azcosmos.ItemOptions{IfMatchEtag: to.Ptr(azcore.ETag(`"1"`))})
	refused(412, err)
	_, err = must(database.NewContainer("none")).ReadItem(ctx, customer, "a", nil)
	refused(404, err)
	advance(99)
	var patch azcosmos.PatchOperations
	patch.AppendIncrement("/n", 2)
	patch.AppendSet("/ttl", 30)
	patch.SetCondition("from c where c.n = 1")
	patched := must(c.PatchItem(ctx, customer, "a", patch, &azcosmos.ItemOptions{EnableContentResponseOnWrite: true}))
	equal(read(patched.Value)["n"], 3.0)
	_, err = c.PatchItem(ctx, customer, "a", patch, nil)
	refused(412, err)
	batch := c.NewTransactionalBatch(customer)
	batch.CreateItem(text("b", nil), nil)
	batch.CreateItem(text("a", nil), nil)
	failed := must(c.ExecuteTransactionalBatch(ctx, batch, nil))
	equal([]any{failed.Success, failed.OperationResults[0].StatusCode, failed.OperationResults[1].StatusCode}, []any{false, int32(424), int32(409)})
	batch = c.NewTransactionalBatch(customer)
	batch.ReadItem("a", nil)
	batch.UpsertItem(text("b", object{"n": 5}), nil)
	equal(must(c.ExecuteTransactionalBatch(ctx, batch, nil)).Success, true)
	advance(30)
	left, _ := rows(c, "SELECT VALUE c.id FROM c", customer, nil)
	equal(left, []string{`"b"`})
}

func queries() {
	c := create(-1)
	var identities []azcosmos.ItemIdentity
	for n := range 25 {
		key := azcosmos.NewPartitionKeyString(fmt.Sprint("C", n%3))
		must(c.CreateItem(ctx, key, text(fmt.Sprint("o", n), object{"customerId": fmt.Sprint("C", n%3), "n": n}), nil))
		identities = append(identities, azcosmos.ItemIdentity{ID: fmt.Sprint("o", n), PartitionKey: key})
	}
	equal(len(must(c.ReadManyItems(ctx, append(identities, azcosmos.ItemIdentity{ID: "none", PartitionKey: customer}), nil)).Items), 25)
	one, all := azcosmos.NewPartitionKeyString("C1"), azcosmos.NewPartitionKey()
	_, sizes := rows(c, "SELECT * FROM c", all, &azcosmos.QueryOptions{PageSizeHint: 10})
	equal(sizes, []int{10, 10, 5})
	found, sizes := rows(c, "SELECT VALUE c.n FROM c WHERE c.n > @n ORDER BY c.n DESC", one, &azcosmos.QueryOptions{PageSizeHint: 3, QueryParameters: []azcosmos.QueryParameter{{Name: "@n", Value: 9}}})
	equal([]any{found, sizes}, []any{[]string{"22", "19", "16", "13", "10"}, []int{3, 2}})
	for query, want := range map[string][]string{
		"SELECT VALUE SUM(c.n) FROM c":                                                              {"92"},
		"SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 1 LIMIT 2":                                     {"4", "7"},
		"SELECT c.customerId, COUNT(1) AS n, MAX(c.n) AS m FROM c GROUP BY c.customerId":            {`{"customerId":"C1","n":8,"m":22}`},
		"SELECT DISTINCT VALUE c.customerId FROM c WHERE STARTSWITH(c.id, 'o1') AND IS_NUMBER(c.n)": {`"C1"`},
	} {
		found, _ := rows(c, query, one, nil)
		equal(found, want, query)
	}
	var page azcosmos.QueryItemsResponse
	for n := 0; n == 0 || page.ContinuationToken != nil; n++ {
		page = must(c.NewQueryItemsPager("SELECT * FROM c ORDER BY c.n", one, &azcosmos.QueryOptions{PageSizeHint: 3, ContinuationToken: page.ContinuationToken}).NextPage(ctx))
		equal(len(page.Items), []int{3, 3, 2}[n])
	}
}

func keys() {
	c := create(-1, "/t", "/u")
	for _, u := range []string{"1", "2"} {
		must(c.CreateItem(ctx, azcosmos.NewPartitionKeyString("a").AppendString(u), text("i", object{"t": "a", "u": u}), nil))
	}
	equal(read(must(c.ReadItem(ctx, azcosmos.NewPartitionKeyString("a").AppendString("2"), "i", nil)).Value)["u"], "2")
	found, _ := rows(c, "SELECT VALUE c.u FROM c", azcosmos.NewPartitionKeyString("a"), nil)
	equal(found, []string{`"1"`, `"2"`})
}

func feed() {
	c := create(-1)
	must(c.CreateItem(ctx, customer, text("a", object{"n": 1}), nil))
	must(c.UpsertItem(ctx, customer, text("a", object{"n": 2}), nil))
	must(c.CreateItem(ctx, customer, text("due", object{"ttl": 60}), nil))
	ranges := must(c.ReadFeedRanges(ctx, nil))
	page := must(c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{FeedRange: &ranges[0]}))
	equal([]any{len(page.Items), read(page.Items[0])["n"], read(page.Items[1])["id"]}, []any{2, 2.0, "due"})
	advance(60)
	must(c.UpsertItem(ctx, customer, text("b", nil), nil))
	page = must(c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{FeedRange: &ranges[0], Continuation: &page.ContinuationToken}))
	equal([]any{len(page.Items), read(page.Items[0])["id"]}, []any{1, "b"})
	equal(len(must(c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{FeedRange: &ranges[0], PartitionKey: &customer})).Items), 2)
}

func main() {
	client := must(azcosmos.NewClientWithKey(endpoint+"/", must(azcosmos.NewKeyCredential(os.Getenv("COSMOS_KEY"))), nil))
	must(client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "Sales_DB"}, nil))
	database = must(client.NewDatabase("Sales_DB"))
	for _, scene := range []func(){samples, nineCases, writes, queries, keys, feed} {
		scene()
	}
	must(database.Delete(ctx, nil))
	_, err := database.Read(ctx, nil)
	refused(404, err)
}
