package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// machine is the hardware and the versions with which benchmarks ran.
type machine struct {
	Cores  int
	CPU    string `json:",omitempty"`
	Go     string
	NATS   string
	Pebble string
	Redis  string `json:",omitempty"`
}

func (m machine) String() string {
	text := fmt.Sprintf("%d cores", m.Cores)
	if m.CPU != "" {
		text += " (" + m.CPU + ")"
	}
	text += fmt.Sprintf(", Go %s, nats-server %s, Pebble %s", m.Go, m.NATS, m.Pebble)
	if m.Redis != "" {
		text += ", Redis " + m.Redis
	}
	return text
}

var (
	cpuName      = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
	redisVersion = regexp.MustCompile(` v=(\S+)`)
)

func thisMachine() (machine, error) {
	versions, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}",
		"github.com/nats-io/nats-server/v2", "github.com/cockroachdb/pebble/v2").Output()
	if err != nil {
		return machine{}, fmt.Errorf("go list -m: %w", err)
	}
	modules := strings.Fields(string(versions))
	cpus, _ := os.ReadFile("/proc/cpuinfo")                        // optional
	redis, _ := exec.Command("redis-server", "--version").Output() // optional, too
	return machine{
		Cores:  runtime.NumCPU(),
		CPU:    first(cpuName, cpus),
		Go:     strings.TrimPrefix(runtime.Version(), "go"),
		NATS:   strings.TrimPrefix(modules[0], "v"),
		Pebble: strings.TrimPrefix(modules[1], "v"),
		Redis:  first(redisVersion, redis),
	}, nil
}

func first(re *regexp.Regexp, text []byte) string {
	if found := re.FindSubmatch(text); found != nil {
		return strings.TrimSpace(string(found[1]))
	}
	return ""
}
