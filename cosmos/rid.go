package cosmos

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Resource ids are digests of names: 4 bytes of a database, 8 of a container and 16 of an
// item, each of which begins with those of its parent:
//
//	database   digest(name)[:4]
//	container  digest(database)[:4] digest(database, name, paths…)[:4]
//	item       the container's 8 bytes, digest(container's rid, document)[:8]
//
// The link of an item ends with its id instead, from which it is found.
//
// A container's is also of its partition key, since SDKs remember the key by the resource
// id. So a container of the same name with another key is another one to them.
//
// Digests need no state: every process has the same ones, and nothing has to be stored.

// digest is SHA-256 over the texts, which have no byte 00.
func digest(texts ...string) []byte {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return sum[:]
}

func databaseRID(name string) string { return encodeRID(digest(name)[:4]) }

// containerRID has the high bit of its fifth byte set: SDKs take others for those of users.
func containerRID(database, name string, paths []string) string {
	own := digest(append([]string{database, name}, paths...)...)[:4]
	own[0] |= 0x80
	return encodeRID(append(digest(database)[:4], own...))
}

// itemRID has a last byte whose high half is 0, which says that it is an item.
func itemRID(container, document string) string {
	parent, _ := decodeRID(container)
	rid := append(parent, digest(container, document)[:8]...)
	rid[len(rid)-1] &= 0x0F
	return encodeRID(rid)
}

// ridEncoding is base64 with - instead of /, which separates segments of paths.
var ridEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-")

func encodeRID(rid []byte) string { return ridEncoding.EncodeToString(rid) }

func decodeRID(text string) ([]byte, bool) {
	rid, err := ridEncoding.DecodeString(text)
	return rid, err == nil
}

// isRID reports whether a segment of a path is a resource id of n bytes. No name of lapse
// ends with =, as those do.
func isRID(text string, n int) bool {
	if !strings.HasSuffix(text, "=") {
		return false
	}
	rid, ok := decodeRID(text)
	return ok && len(rid) == n
}
