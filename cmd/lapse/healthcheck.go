package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/host"
)

// healthTimeout bounds a healthcheck. It is less than the timeout in the Dockerfile, so that
// the container engine shows the reason.
const healthTimeout = 4 * time.Second

// newHealthcheckCommand is the healthcheck of the image. The image sets
// LAPSE_HEALTH_SOCKET, which serve reads whatever its arguments are. The command uses no
// NATS and no login. A container that runs another command of lapse has no socket, and is
// healthy.
func newHealthcheckCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "healthcheck PATH",
		Short:   "Exit with 1 unless the serve with --health-socket PATH is ready",
		Example: "  lapse healthcheck /run/lapse.sock",
		Hidden:  true,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			code, text, err := httpGet(ctx, "unix", args[0], "/readyz")
			if errors.Is(err, fs.ErrNotExist) {
				// serve makes the socket first of all, so this container runs another command.
				_, err = fmt.Fprintln(a.stdout, "nothing to check: no serve has this socket")
				return err
			}
			if err != nil {
				return fmt.Errorf("no lapse serve answers at %s", args[0])
			}
			var why host.Readiness
			if err := json.Unmarshal(text, &why); err != nil || code != http.StatusOK {
				return fmt.Errorf("not ready: %s", strings.Join(why.Reasons, "; "))
			}
			_, err = fmt.Fprintln(a.stdout, "ready")
			return err
		},
	}
}
