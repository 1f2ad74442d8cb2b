package console

import (
	"path/filepath"
	"testing"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/tools/npm"
)

// TestStyle: the pages can be reviewed line by line: a statement a line, of at most 120 characters.
func TestStyle(t *testing.T) {
	t.Parallel()
	modules := npm.Install(t)
	config, err := filepath.Abs("testdata/eslint.config.mjs")
	check(t, err)
	eslint := child.Tool(t.Context(), "node", filepath.Join(modules, "eslint/bin/eslint.js"), "--config", config)
	eslint.Dir = "../../../console/static"
	eslint.Env = append(eslint.Environ(), "MODULES="+modules)
	if out, err := eslint.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
