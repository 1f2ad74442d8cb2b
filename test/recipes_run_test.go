package test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// recipeTimeout bounds the run of a program of the page.
const recipeTimeout = 2 * time.Minute

// TestRecipesRun: the programs of docs/recipes.md print what the page says. Each runs
// where its requirements are installed: python3 and nats-py (PYTHONPATH may help), nats.
// Elsewhere the tools of its language accept it.
func TestRecipesRun(t *testing.T) {
	t.Parallel()
	for _, language := range []struct {
		name, file, run, tool, check string
		needs                        func(t *testing.T) (missing string)
	}{
		{"python", "recipes.py", `exec python3 run.py recipes.py`, "python3", `exec python3 run.py recipes.py -`, needsPython},
		{"sh", "recipes.sh", `exec sh recipes.sh`, "sh", `exec sh -n recipes.sh`, needsNATS},
	} {
		t.Run(language.name, func(t *testing.T) {
			missing := language.needs(t)
			if _, err := exec.LookPath(language.tool); err != nil {
				t.Skip("there is no " + missing)
			}
			dir := t.TempDir()
			_, program := recipes(t, language.name)
			write(t, filepath.Join(dir, language.file), program)
			write(t, filepath.Join(dir, "run.py"), topLevelAwait)
			if missing != "" {
				cmd := recipe(t.Context(), t, "sh", "-c", language.check)
				cmd.Dir = dir
				if printed, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, printed)
				}
				t.Skip("it is well formed, and does not run: there is no " + missing)
			}
			ctx, cancel := context.WithTimeout(t.Context(), recipeTimeout)
			defer cancel()
			cmd := recipe(ctx, t, "sh", "-c", language.run)
			cmd.Dir = dir
			cmd.Env = append(cmd.Env, "NATS_URL="+harness.Serve(t).URL())
			var printed bytes.Buffer
			cmd.Stdout, cmd.Stderr = &printed, &printed
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, printed.Bytes())
			}
			checkPrinted(t, program, printed.String())
		})
	}
}

// recipe returns a command that finds the Python packages of the developer.
func recipe(ctx context.Context, t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := child.CommandContext(ctx, t, name, args...)
	cmd.Env = append(cmd.Env, "PYTHONPATH="+os.Getenv("PYTHONPATH"))
	return cmd
}

// topLevelAwait runs a program like python3 -m asyncio; with "-" as an argument, in place
// of a server to run against, it only compiles it.
const topLevelAwait = `
import ast, asyncio, inspect, sys
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
async def main():
    result = eval(code, {})
    if inspect.isawaitable(result):
        await result
if sys.argv[2:] != ["-"]:
    asyncio.run(main())
`

func write(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o600))
}

func needsPython(t *testing.T) string {
	if recipe(t.Context(), t, "python3", "-c", "import nats.js").Run() != nil {
		return "nats-py for a python3"
	}
	return ""
}

func needsNATS(t *testing.T) string {
	if recipe(t.Context(), t, "nats", "--version").Run() != nil {
		return "nats CLI"
	}
	return ""
}
