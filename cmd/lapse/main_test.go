package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("GOGC", "100") // keeps serve from setting it for the whole process
	if err := harness.SideBySide(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
