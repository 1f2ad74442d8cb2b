package service_test

import (
	"testing"

	"github.com/lapsedb/lapse/processor/processortest"
)

func TestMain(m *testing.M) { processortest.Main(m) }
