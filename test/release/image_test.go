package release

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestImage: the image builds, has its labels and no root, and is healthy once it serves,
// whatever the arguments are.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs a container engine")
	}
	need(t, "docker")
	if out, err := exec.Command("docker", "info").CombinedOutput(); err != nil {
		t.Skipf("no container engine: %v: %s", err, out)
	}
	const image = "lapse-release-test"
	t.Setenv("IMAGE", image)
	command(t, "deploy/image.sh")
	t.Cleanup(func() { command(t, "docker", "rmi", "--force", image) })
	commit := strings.TrimSpace(command(t, "git", "rev-parse", "HEAD"))
	about := command(t, "docker", "inspect", "--format", `{{.Config.User}} {{index .Config.Labels "org.opencontainers.image.revision"}}`, image)
	if about != "65532:65532 "+commit+"\n" {
		t.Errorf("user and revision are %s", about)
	}
	for name, args := range map[string][]string{
		"default":         nil,
		"test":            {"test", "--listen", "0.0.0.0:4222", "--no-auth"},
		"without metrics": {"serve", "--store-dir", "/data", "--console", "off"},
		"other addresses": {"serve", "--store-dir", "/data", "--listen", "127.0.0.1:5222", "--metrics", "127.0.0.1:9999", "--database", "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.TrimSpace(command(t, "docker", append([]string{"run", "--detach", "--network", "none", "--read-only", image}, args...)...))
			t.Cleanup(func() { command(t, "docker", "rm", "--force", "--volumes", id) })
			for {
				switch state := strings.TrimSpace(command(t, "docker", "inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", id)); state {
				case "running healthy":
					if code := strings.TrimSpace(command(t, "docker", "stop", id)); code != id {
						t.Errorf("stop: %s", code)
					}
					if code := command(t, "docker", "inspect", "--format", "{{.State.ExitCode}}", id); code != "0\n" {
						t.Errorf("it ended with %s", code)
					}
					return
				case "running starting":
					time.Sleep(100 * time.Millisecond)
				default:
					t.Fatalf("it is %s:\n%s", state, command(t, "docker", "logs", id))
				}
			}
		})
	}
}
