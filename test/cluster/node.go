package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// Node is one nats-server of a cluster.
type Node struct {
	Name string

	t       testing.TB
	binary  string
	config  string
	client  string // HOST:PORT for clients, routes and monitoring
	route   string
	monitor string

	process *harness.Process // nil before Start and after Kill
}

// configuration of a node. It advertises an address that refuses connections, so that all
// routes go through our gates.
var configuration = template.Must(template.New("").Parse(`
server_name: {{.Name}}
listen: "{{.Client}}"
http: "{{.Monitor}}"
max_payload: 4MB
log_file: "{{.Log}}"
jetstream { store_dir: "{{.Store}}"{{if .SyncAlways}}, sync_interval: always{{end}} }
cluster {
  name: lapse
  listen: "{{.Route}}"
  advertise: "{{.Nowhere}}"
  no_advertise: true
  routes: [{{range .Routes}}"nats-route://{{.}}", {{end}}]
}
`))

func (n *Node) configure(dir, logs, nowhere string, routes []string, syncAlways bool) {
	n.t.Helper()
	n.config = filepath.Join(dir, n.Name+".conf")
	f, err := os.Create(n.config)
	if err != nil {
		n.t.Fatal(err)
	}
	err = configuration.Execute(f, map[string]any{
		"Name": n.Name, "Client": n.client, "Route": n.route, "Monitor": n.monitor, "Routes": routes, "Nowhere": nowhere, "SyncAlways": syncAlways,
		"Store": filepath.Join(dir, n.Name), "Log": filepath.Join(logs, n.Name+".log"),
	})
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// Start starts the node unless it runs, without waiting for it to be ready.
func (n *Node) Start() {
	n.t.Helper()
	if n.process != nil {
		return
	}
	cmd := child.Command(n.t, n.binary, "-c", n.config)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // its log is in a file
	n.process = harness.StartProcess(n.t, cmd, nil)
}

// URL returns the URL of the node past all gates.
func (n *Node) URL() string { return "nats://" + n.client }

// Kill ends the node with SIGKILL, if it runs, frozen or not.
func (n *Node) Kill() {
	if n.process != nil {
		n.process.Kill()
		n.process = nil
	}
}

// Freeze stops the node until Thaw, and returns when it has stopped. The system keeps its
// connections.
func (n *Node) Freeze() {
	n.t.Helper()
	if n.process == nil {
		return
	}
	if err := n.process.Freeze(); err != nil {
		n.t.Fatalf("freeze %s: %v", n.Name, err)
	}
}

// Thaw continues a frozen node.
func (n *Node) Thaw() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(s os.Signal) {
	n.t.Helper()
	if n.process == nil {
		return
	}
	if err := n.process.Process.Signal(s); err != nil {
		n.t.Fatalf("%s to %s: %v", s, n.Name, err)
	}
}

// ask reads a monitoring page of the node.
func (n *Node) ask(page string, into any) error {
	select {
	case <-n.process.Ended:
		return fmt.Errorf("%s has ended: %s", n.Name, n.process.ProcessState)
	default:
	}
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + n.monitor + page)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if into != nil {
		err = json.NewDecoder(reply.Body).Decode(into)
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", page, n.Name, reply.Status)
	}
	return err
}

// leaders returns the leaders of JetStream, under "", and of each stream, as this node
// sees them. It fails if this node leads JetStream and another node is offline.
func (n *Node) leaders() (map[string]string, error) {
	type group struct {
		Leader string `json:"leader"`
	}
	var page struct {
		Meta struct {
			group
			Size   int `json:"cluster_size"`
			Others []struct {
				Name    string `json:"name"`
				Offline bool   `json:"offline"`
			} `json:"replicas"`
		} `json:"meta_cluster"`
		Accounts []struct {
			Streams []struct {
				Name    string `json:"name"`
				Cluster group  `json:"cluster"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := n.ask("/jsz?streams=1", &page); err != nil {
		return nil, err
	}
	if page.Meta.Size != Nodes {
		return nil, fmt.Errorf("%s sees %d nodes", n.Name, page.Meta.Size)
	}
	for _, other := range page.Meta.Others {
		if other.Offline && page.Meta.Leader == n.Name {
			return nil, fmt.Errorf("%s misses %s", n.Name, other.Name)
		}
	}
	all := map[string]string{"": page.Meta.Leader}
	for _, account := range page.Accounts { // there is one
		for _, stream := range account.Streams {
			all[stream.Name] = stream.Cluster.Leader
		}
	}
	return all, nil
}
