package compose

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const deploy = "../../../deploy"

// load reads docker-compose.yml as docker compose does, with the variables given.
func load(t *testing.T, variables ...string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(deploy, "..", "docker-compose.yml")}, cli.WithEnv(variables), cli.WithResolvedPaths(true), cli.WithInterpolation(true))
	check(t, err)
	return options.LoadProject(t.Context())
}

// variables returns the variables that the keys command writes.
func variables(t *testing.T) (all []string) {
	t.Helper()
	for name, value := range environment {
		all = append(all, name+"="+value)
	}
	return all
}

// TestWithoutKeys: without keys, the error names the command that makes them.
func TestWithoutKeys(t *testing.T) {
	if _, err := load(t); err == nil || !strings.Contains(err.Error(), "go run ./deploy/keys") {
		t.Errorf("got %v", err)
	}
}

// TestContainersHardened: every container has only the rights it needs, and its ports are bound to
// loopback.
func TestContainersHardened(t *testing.T) {
	project, err := load(t, variables(t)...)
	check(t, err)
	if len(project.Services) != 10 {
		t.Errorf("%d services", len(project.Services))
	}
	for name, s := range project.Services {
		uid, _, _ := strings.Cut(s.User, ":")
		switch {
		case !s.ReadOnly:
			t.Errorf("%s can write to its root", name)
		case uid == "" || uid == "0" || uid == "root":
			t.Errorf("%s runs as %q", name, s.User)
		case s.Privileged || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0:
			t.Errorf("%s has capabilities", name)
		case !slices.Contains(s.SecurityOpt, "no-new-privileges:true"):
			t.Errorf("%s may gain privileges", name)
		case s.MemLimit == 0 || s.PidsLimit == 0:
			t.Errorf("%s may take all of the machine", name)
		case s.NetworkMode != "" && s.NetworkMode != strings.Replace(name, "exporter-", "service:nats-", 1) || s.Pid != "" || s.Ipc != "":
			t.Errorf("%s shares what is the machine's", name)
		case s.Restart != types.RestartPolicyUnlessStopped:
			t.Errorf("%s stays away", name)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p.HostIP, "127.0.0.1") {
				t.Errorf("%s publishes %s at %q", name, p.Published, p.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind && !v.ReadOnly && !strings.Contains(v.Source, filepath.Join("deploy", "data")) {
				t.Errorf("%s can write to %s", name, v.Source)
			}
			if _, err := os.Stat(v.Source); err != nil && !strings.Contains(v.Source, filepath.Join("deploy", "data")) && !strings.Contains(v.Source, filepath.Join("deploy", "secrets")) {
				t.Errorf("%s: %v", name, err)
			}
			if strings.Contains(v.Source, "docker.sock") {
				t.Errorf("%s is given the machine", name)
			}
			if strings.HasSuffix(filepath.ToSlash(v.Source), "deploy/secrets") || strings.HasSuffix(filepath.ToSlash(v.Source), "secrets/nkeys") {
				t.Errorf("%s is given all secrets", name)
			}
		}
		for _, one := range s.Secrets {
			if one.Source == "operator" || one.Source == "system" {
				t.Errorf("%s is given the key of the %s", name, one.Source)
			}
		}
		if healthy := s.HealthCheck != nil && len(s.HealthCheck.Test) > 0 || strings.HasPrefix(name, "lapse-") || strings.HasPrefix(name, "exporter-"); !healthy {
			t.Errorf("nobody checks the health of %s", name)
		}
	}
}

// TestNodesAdvertiseRoutes: each node advertises its route address of the others' list,
// which its route certificate names.
func TestNodesAdvertiseRoutes(t *testing.T) {
	project, err := load(t, variables(t)...)
	check(t, err)
	for _, name := range nodeNames {
		environment := project.Services[name].Environment
		advertised := *environment["NATS_CLUSTER_ADVERTISE"]
		host, _, err := net.SplitHostPort(advertised)
		if err != nil || !slices.ContainsFunc([]string{"NATS_ROUTE_1", "NATS_ROUTE_2", "NATS_ROUTE_3"}, func(route string) bool {
			return *environment[route] == "tls://"+advertised
		}) {
			t.Errorf("%s advertises %q, which is no route: %v", name, advertised, err)
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(secrets, name, "route-cert.pem"), filepath.Join(secrets, name, "route-key.pem"))
		check(t, err)
		if err := pair.Leaf.VerifyHostname(host); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
