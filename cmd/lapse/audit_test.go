package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestAuditLeavesOutFindings: the last line says that not every finding is printed.
func TestAuditLeavesOutFindings(t *testing.T) {
	var log strings.Builder
	for seq := range 1002 {
		fmt.Fprintf(&log, `{"seq":%d,"time":"2015-05-17T10:05:00.000Z","type":"DocumentDeleted","collection":"c","id":"a","previous":1}`+"\n", seq+2)
	}
	var stdout, stderr bytes.Buffer
	code := newApp(strings.NewReader(log.String()), &stdout, &stderr).run(t.Context(), []string{"audit", "-", "--json"})
	const want = "lapse: the audit has 1002 findings and prints the first ones of each rule, 1001: start with sequence 2\n"
	if code != exitFailed || stderr.String() != want {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}
