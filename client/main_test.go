package client_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/harness/inprocess"
)

// TestMain runs a whole lapse for the examples, since users copy them. The other tests
// use a stand-in that can misbehave.
func TestMain(m *testing.M) {
	var stop func() error
	err := harness.SideBySide()
	if err == nil {
		address, stop, err = inprocess.Serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(stop(), goleak.Find()); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
