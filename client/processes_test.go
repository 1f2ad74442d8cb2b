package client_test

import (
	"errors"
	"testing"

	"github.com/lapsedb/lapse/client"
)

func TestProcesses(t *testing.T) {
	c, err := client.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := c.Processes(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	if p := all[0]; p.Role != "writer" || p.ID == "" || p.Node == "" || p.Started == "" || p.Error != "" || p.Seq == 0 {
		t.Errorf("%+v", p)
	}

	other, err := client.New(c.Conn(), client.WithDatabase("other"))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := other.Processes(t.Context()); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("of another database: %+v, %v", all, err)
	}
	denied := newStandin(t).connect("nobody")
	if c, err = client.New(denied); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Processes(t.Context()); !errors.Is(err, client.ErrUnavailable) || err.Error() != "this NATS user has no permission to ask all processes: let it publish to $SRV.INFO.lapse and receive replies" {
		t.Errorf("without permission: %v", err)
	}
}
