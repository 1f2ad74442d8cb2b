package versus

import "fmt"

// ID returns the id of document n.
func ID(n int) string { return fmt.Sprintf("order-%08d", n) }

// Document returns the content of document n: JSON of about 200 bytes.
func Document(n int) []byte { return DocumentWith(n, "") }

// DocumentWith is Document with more members, such as `"ttl":5,`.
func DocumentWith(n int, members string) []byte {
	return fmt.Appendf(nil, `{"id":%q,%s"customer":"C%05d","status":"open","total":%d.%02d,"currency":"EUR",`+
		`"placed":"2026-03-0%dT10:05:03Z","lines":[{"sku":"A-%04d","quantity":%d},{"sku":"B-%04d","quantity":1}],"note":"ring twice"}`,
		ID(n), members, n%10_000, n%900, n%100, 1+n%9, n%9973, 1+n%5, n%7919)
}

// Spread maps the count of an operation to a document number below documents: each is
// used equally often, and consecutive operations are 7919 apart, modulo documents.
// documents must not be a multiple of 7919.
func Spread(n, documents int) int { return n * 7919 % documents }
