package client_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestMain runs a whole lapse for the examples, since users copy them. The other tests
// use a stand-in that can misbehave.
func TestMain(m *testing.M) {
	var stop func()
	err := harness.SideBySide()
	if err == nil {
		err = serve(&stop)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func serve(stop *func()) error {
	dir, err := os.MkdirTemp("", "lapse-client")
	if err != nil {
		return err
	}
	server, err := embedded.Start(embedded.Options{StoreDir: dir, Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"}})
	if err != nil {
		return err
	}
	logConn, err := server.ConnectLog()
	if err != nil {
		return err
	}
	serviceConn, err := server.ConnectService()
	if err != nil {
		return err
	}
	p, err := processor.Start(context.Background(), eventlog.Connections{Log: logConn, Service: serviceConn}, processor.Options{
		Dir: filepath.Join(dir, "projection"), Durability: processor.OS, Version: "0.0.0"})
	if err != nil {
		return err
	}
	address = server.URL()
	*stop = func() {
		if err := p.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		logConn.Close()
		serviceConn.Close()
		server.Shutdown()
		_ = os.RemoveAll(dir)
	}
	return nil
}
