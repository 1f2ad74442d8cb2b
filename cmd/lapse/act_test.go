package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestActionFlags: what does not go together, or cannot be read, is wrong usage, in one line
// that says what to do and has no secret.
func TestActionFlags(t *testing.T) {
	t.Parallel()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), name)
		check(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	const url, run = "--durable d --post https://example.net/", "--durable d --exec true"
	for args, says := range map[string]string{
		"--durable d":                       "--durable without --exec or --post",
		"--workers 2":                       "--workers without --exec or --post",
		"--dry-run":                         "--dry-run without --exec or --post",
		"--exec true":                       "need --durable NAME",
		"--exec true --durable a.b":         "need --durable NAME",
		run + " --post https://example.net": "use one of them",
		url + " --post-file x":              "use one of them",
		run + " --secret-file x":            "--secret-file without --post",
		run + " --workers 0":                "use 1 to 1000",
		run + " --workers 1001":             "use 1 to 1000",
		run + " --run-timeout 0":            "use a duration above 0",
		run + " --tries 0":                  "use 1 or more",
		run + " --tries 0 --poison p":       "use 1 or more",
		run + " --tries 2":                  "--tries needs one of",
		run + " --tries 2 --poison p --poison-file " + filepath.Join(t.TempDir(), "aside"): "--tries needs one of",
		run + " --poison p":                                                     "need --tries N",
		run + " --poison-file p":                                                "need --tries N",
		run + " --tries 2 --poison a.b":                                         "--poison: ",
		run + " --tries 2 --poison p --collection p,q":                          "--poison is one of --collection",
		run + " --tries 2 --poison-file /no/such/dir":                           "--poison-file: open /no/such/dir",
		run + " --metrics 9090":                                                 "use HOST:PORT",
		run + " --metrics 127.0.0.1:1 --exec false":                             "--exec is given twice",
		"--durable d --post ftp://example.net/":                                 "use a URL of http or https",
		"--durable d --post hunter2":                                            "use a URL of http or https",
		"--durable d --post http://a:hunter2":                                   "use a URL of http or https",
		"--durable d --post http://a:hunter2@b/":                                "give --post-file FILE",
		"--durable d --post-file /no/such/file":                                 "--post-file: /no/such/file: no such file",
		"--durable d --post-file " + file("open", "http://a:hunter2@b/", 0o644): "chmod 600",
		"--durable d --post-file " + file("url", "a:hunter2@b", 0o600):          "use a URL of http or https",
		url + " --secret-file " + file("empty", "", 0o600):                      "is empty",
		url + " --secret-file " + file("lines", "hunter2\nhunter2", 0o600):      "more than one line",
		url + " --secret-file " + file("read", "hunter2", 0o604):                "chmod 600",
		url + " --secret-file /no/such/file":                                    "--secret-file: /no/such/file: no such file",
	} {
		var stderr strings.Builder
		code := newApp(strings.NewReader(""), io.Discard, &stderr).run(t.Context(), append([]string{"watch", "--server", "nats://127.0.0.1:1"}, strings.Fields(args)...))
		if got := stderr.String(); code != exitUsage || !strings.Contains(got, says) || strings.Count(got, "\n") != 1 || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %d %s, want %q", args, code, got, says)
		}
	}
}
