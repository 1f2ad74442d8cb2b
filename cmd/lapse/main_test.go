package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("GOGC", "100") // which serve sets for the whole process otherwise
	if err := harness.SideBySide(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
