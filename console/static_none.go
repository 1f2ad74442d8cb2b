//go:build no_console

package console

import "net/http"

// Built reports whether this build has a console.
const Built = false

// serveStatic says that there are no pages.
func serveStatic(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusNotFound, "not_found", "this lapse was built without the pages of the console (tag no_console)")
}
