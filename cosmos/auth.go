package cosmos

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lapsedb/lapse/webserver"
)

// WellKnownKey is the account key of all emulators, which is no secret. The documentation
// of the emulator publishes it, and the SDKs know it.
const WellKnownKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// maxSkew is how far the date of a signature may be from the machine's clock. Somebody who
// has overheard a signature can use it again for that long.
const maxSkew = 15 * time.Minute

// admits returns an error unless the request came under a name of the gateway's and from no
// web page: with DNS rebinding, a page of another site has that site's name. Thus neither
// a page in a browser nor a name that leads here by chance can use the well-known key.
func (g *Gateway) admits(r *http.Request) error {
	host := webserver.Hostname(r.Host)
	known := host == "localhost" || net.ParseIP(host).IsLoopback() ||
		slices.ContainsFunc(g.options.Hosts, func(own string) bool { return strings.EqualFold(own, host) })
	switch {
	case !known:
		return faultf(http.StatusForbidden, "the gateway does not answer under the name of this Host header: allow it with --cosmos-host")
	case len(r.Header.Values("Origin")) > 0:
		return faultf(http.StatusForbidden, "the gateway answers no web pages: this request has an Origin")
	}
	return nil
}

// authorize returns an error unless the request is signed with the account key, or has a token
// of Microsoft Entra where the key is the well-known one. The header is
// type=master&ver=1.0&sig=<base64>, in percent code. What is signed has five lines:
//
//	get
//	docs
//	dbs/salesdb/colls/orders/docs/SO05
//	tue, 01 nov 1994 08:12:31 gmt
//	(empty)
//
// The method, type and date are in lower case, the link as sent. Body and query are not
// signed, so over http anybody in between can change them.
func (g *Gateway) authorize(r *http.Request, path []string) error {
	text, err := url.PathUnescape(r.Header.Get("Authorization"))
	var version, kind, signature string
	for field := range strings.SplitSeq(text, "&") {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "ver":
			version = value
		case "type":
			kind = value
		case "sig":
			signature = value
		}
	}
	switch {
	case err != nil || version != "1.0" || signature == "":
		return unauthorized("the header authorization is missing or malformed")
	case kind == "aad" && g.wellKnown:
		return nil
	case kind == "aad":
		return unauthorized("tokens of Microsoft Entra are accepted beside the well-known key only: use the account key")
	case kind != "master":
		return unauthorized("authorization of type %.20q is not served: use the account key", kind)
	}
	date := r.Header.Get("X-Ms-Date")
	at, err := http.ParseTime(date)
	if err != nil || time.Since(at).Abs() > maxSkew {
		return unauthorized("x-ms-date %.60q is not within 15 minutes of the clock here", date)
	}
	given, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return unauthorized("the signature is not base64")
	}
	for _, link := range signedLinks(path) {
		if hmac.Equal(given, g.sign(r.Method, signedType(path), link, date)) {
			return nil
		}
	}
	return unauthorized("the signature is not one of this account's key for this request")
}

func unauthorized(format string, args ...any) *fault {
	return faultf(http.StatusUnauthorized, format, args...)
}

// sign returns the signature of a request: HMAC-SHA-256 by the account key.
func (g *Gateway) sign(method, kind, link, date string) []byte {
	mac := hmac.New(sha256.New, g.key)
	mac.Write([]byte(strings.ToLower(method) + "\n" + kind + "\n" + link + "\n" + strings.ToLower(date) + "\n\n"))
	return mac.Sum(nil)
}

// signedType returns the type of resource that the signature of a path has. A path of an
// even number of segments ends with an id, after the type. One of an odd number ends with
// the type: dbs/salesdb/colls is colls.
func signedType(path []string) string {
	if len(path) == 0 {
		return ""
	}
	if isOperation(path) {
		return "colls"
	}
	return path[(len(path)-1)/2*2]
}

// isOperation reports whether the path is one of operations on a container.
func isOperation(path []string) bool { return len(path) == 6 && path[4] == "operations" }

// signedLinks returns the links that the signature of a path may have: the path of the
// resource, or the resource id at its end in lower case. SDKs that follow a _self sign its
// resource id alone.
func signedLinks(path []string) []string {
	switch {
	case isOperation(path):
		path = path[:4]
	case len(path)%2 == 1:
		path = path[:len(path)-1]
	}
	links := []string{strings.Join(path, "/")}
	if len(path) > 0 {
		if last := path[len(path)-1]; path[0] == "offers" || strings.HasSuffix(last, "=") || len(path) == 6 && isRID(path[1], 4) {
			links = append(links, strings.ToLower(last))
		}
	}
	return links
}
