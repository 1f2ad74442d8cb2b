package host

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var check = harness.Check
