// Package test holds the tests that start real processes.
package test

import (
	"os"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
