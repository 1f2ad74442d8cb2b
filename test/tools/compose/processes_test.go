package compose

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// machine replaces the network and files of the containers: each service is a process
// here, with other addresses and paths.
type machine struct {
	project *types.Project
	data    string
	addrs   map[string]string // by NAME:PORT
	nats    string            // the binaries
	lapse   string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	project, err := load(t, variables(t)...)
	check(t, err)
	m := &machine{project: project, data: t.TempDir(), addrs: map[string]string{}, lapse: build(t)}
	if m.nats, err = harness.Build(harness.NATSServer); err != nil {
		t.Fatal(err)
	}
	ports := []string{"4222", "6222", "8222", "9090"}
	free := harness.FreeAddrs(t, len(ports)*len(project.Services))
	for name := range project.Services {
		for _, port := range ports {
			m.addrs[name+":"+port], free = free[0], free[1:]
		}
	}
	return m
}

// here replaces the addresses and paths of a service's container by those here.
func (m *machine) here(service types.ServiceConfig, text string) string {
	for address, here := range m.addrs {
		name, port, _ := strings.Cut(address, ":")
		if name == service.Name {
			text = strings.ReplaceAll(text, "0.0.0.0:"+port, here)
			text = strings.ReplaceAll(text, "127.0.0.1:"+port, here)
		}
		text = strings.ReplaceAll(text, "://"+address, "://"+here)
		if text == address {
			text = here
		}
	}
	for _, v := range service.Volumes {
		text = strings.ReplaceAll(text, v.Target, m.source(v.Source))
	}
	for _, s := range service.Secrets {
		if path := "/run/secrets/" + s.Source; strings.HasSuffix(text, path) {
			text = strings.ReplaceAll(text, path, m.source(m.project.Secrets[s.Source].File))
		}
	}
	return text
}

// source returns the path here of a mounted file or directory.
func (m *machine) source(path string) string {
	path = filepath.ToSlash(path)
	if _, below, ok := strings.Cut(path, "/deploy/secrets/"); ok {
		return filepath.Join(secrets, below)
	}
	if _, below, ok := strings.Cut(path, "/deploy/data/"); ok {
		return filepath.Join(m.data, below)
	}
	return path
}

// start runs a service.
func (m *machine) start(t *testing.T, name string) *process {
	t.Helper()
	service := m.project.Services[name]
	service.Name = name
	args := []string(service.Command)
	binary := m.lapse
	if args[0] == "nats-server" {
		binary, args = m.nats, args[1:]
	}
	cmd := child.Command(t, binary)
	for _, arg := range args {
		cmd.Args = append(cmd.Args, m.here(service, arg))
	}
	cmd.Env = []string{}
	for variable, value := range service.Environment {
		cmd.Env = append(cmd.Env, variable+"="+m.here(service, *value))
	}
	cmd.Dir = t.TempDir()
	p := &process{name, harness.StartProcess(t, cmd, nil)}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, p.Output())
		}
	})
	return p
}

// process is a running service.
type process struct {
	name string
	*harness.Process
}

var (
	check      = harness.Check
	eventually = harness.Eventually
)

// startNodes starts the NATS nodes, and waits until they are healthy.
func (m *machine) startNodes(t *testing.T) (nodes []*process) {
	t.Helper()
	for _, name := range nodeNames {
		nodes = append(nodes, m.start(t, name))
	}
	for _, p := range nodes {
		m.nodeHealthy(t, p)
	}
	return nodes
}

var nodeNames = []string{"nats-1", "nats-2", "nats-3"}

// nodeHealthy waits until the healthcheck of a node passes.
func (m *machine) nodeHealthy(t *testing.T, p *process) {
	t.Helper()
	test := m.project.Services[p.name].HealthCheck.Test
	url := strings.ReplaceAll(test[len(test)-1], "127.0.0.1:8222", m.addrs[p.name+":8222"])
	eventually(t, p.name+" is healthy", func() bool {
		r, err := http.Get(url)
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// startLapses starts the lapse processes, and waits until one of them writes.
func (m *machine) startLapses(t *testing.T) (lapses []*process) {
	t.Helper()
	for _, name := range []string{"lapse-1", "lapse-2"} {
		lapses = append(lapses, m.start(t, name))
	}
	for _, p := range lapses {
		p.ready(t)
	}
	eventually(t, "one of them writes", func() bool { return writer(lapses) != nil })
	return lapses
}

func (p *process) ready(t *testing.T) {
	t.Helper()
	eventually(t, p.name+" is ready", func() bool { return strings.Contains(p.Output(), ` msg="ready: `) })
}

// writer returns a process that logged the writer as its last role, nil if there is none.
func writer(lapses []*process) (found *process) {
	for _, p := range lapses {
		last := func(role string) int {
			text := p.Output()
			return max(strings.LastIndex(text, "as the "+role), strings.LastIndex(text, "role="+role), strings.LastIndex(text, `"role":"`+role+`"`))
		}
		if last("writer") > last("standby") {
			found = p
		}
	}
	return found
}

// healthy runs the HEALTHCHECK of the image.
func (m *machine) healthy(t *testing.T, p *process) {
	t.Helper()
	_, list, _ := strings.Cut(instruction(t, "HEALTHCHECK "), " CMD ")
	var command []string
	if err := json.Unmarshal([]byte(list), &command); err != nil || command[0] != "/lapse" {
		t.Fatalf("%q: %v", list, err)
	}
	for i := range command {
		command[i] = m.here(types.ServiceConfig{Name: p.name}, command[i])
	}
	eventually(t, p.name+" is healthy", func() bool {
		out, err := child.Command(t, m.lapse, command[1:]...).CombinedOutput()
		if err != nil && strings.Contains(string(out), "unknown flag") {
			t.Fatalf("%s", out)
		}
		return err == nil
	})
}

// client connects as an application.
func (m *machine) client(t *testing.T) *client.Client {
	t.Helper()
	lapse, err := client.Connect(m.urls(), client.WithTimeout(5*time.Second), client.WithNATSOptions(login(t, "client")...))
	check(t, err)
	t.Cleanup(lapse.Close)
	return lapse
}

// urls returns the client URLs of the nodes.
func (m *machine) urls() string {
	var urls []string
	for _, name := range nodeNames {
		urls = append(urls, "tls://"+m.addrs[name+":4222"])
	}
	return strings.Join(urls, ",")
}

// login returns the connection options of a user.
func login(t *testing.T, user string) []nats.Option {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(filepath.Join(secrets, "nkeys", user+".nk"))
	check(t, err)
	return []nats.Option{key, nats.RootCAs(filepath.Join(secrets, "ca.pem")), nats.MaxReconnects(-1)}
}
