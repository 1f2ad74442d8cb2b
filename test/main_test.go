// Package test holds the tests that start real processes.
package test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) {
	code := harness.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
