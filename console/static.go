//go:build !no_console

package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// Built reports whether this build has a console; the build tag no_console omits it.
const Built = true

//go:embed static
var embedded embed.FS

// file is a file of the pages, ready to send. Both forms are made once, so a request costs
// no compression.
type file struct {
	contentType, etag string
	plain, gzipped    []byte
}

// files returns all files by URL path. The first call computes them.
var files = sync.OnceValue(func() map[string]*file {
	all := map[string]*file{}
	root, _ := fs.Sub(embedded, "static") // neither this nor the reads below can fail: the files are in the binary
	_ = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		f := &file{contentType: contentType(name), plain: content, etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, _ = z.Write(content)
		_ = z.Close()
		f.gzipped = b.Bytes()
		all["/"+name] = f
		return nil
	})
	all["/"] = all["/index.html"]
	return all
})

// contentType returns the content type of a file. It does not use package mime: the
// machine's table of types may differ.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "text/plain; charset=utf-8"
}

// serveStatic answers a request for a file of the pages. They have no data and no state:
// anyone who may reach the console may read them.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	f := files()[r.URL.Path]
	if f == nil {
		refuse(w, http.StatusNotFound, "not_found", "the console has no such page")
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-cache") // revalidate with the ETag each time
	header.Set("Vary", "Accept-Encoding")
	header.Set("ETag", f.etag)
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", f.contentType)
	content := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		content = f.gzipped
		header.Set("Content-Encoding", "gzip")
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(content)
	}
}
