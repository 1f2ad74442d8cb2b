package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/console"
	"github.com/lapsedb/lapse/host"
)

// consoleAddress is the default of --console.
const consoleAddress = "127.0.0.1:8280"

// leastToken is the minimum length of a console token, in bytes.
const leastToken = 16

// consoleFlags are the flags of the console: address, token and host names, for serve, test
// and console.
//
// Who may connect is decided here, before anything listens: loopback needs no token, any
// other address needs one, and test --no-auth alone serves others without. Which changes
// the console permits is up to package host and --write.
type consoleFlags struct {
	address   string // HOST:PORT, or off
	given     bool   // --console was given
	tokenFile string
	hosts     []string
}

func (f *consoleFlags) add(flags *pflag.FlagSet, off string) {
	flags.StringVar(&f.address, "console", consoleAddress, flagText[host.Console]("Address")+off)
	flags.StringVar(&f.tokenFile, "console-token-file", "", flagText[host.Console]("Token"))
	flags.StringSliceVar(&f.hosts, "console-host", nil, flagText[host.Console]("Hosts"))
}

// options returns the console that the flags ask for; the zero value is none. It tolerates
// that the default address is in use: several lapse run on one machine, and only the first
// needs a console. An address that was given must be free.
func (f *consoleFlags) options() (host.Console, error) {
	if f.address == "off" || !console.Built && !f.given {
		return host.Console{}, nil
	}
	if !console.Built {
		return host.Console{}, usageErrorf("--console %s: this lapse was built without the console (tag no_console)", f.address)
	}
	token, err := f.readToken()
	return host.Console{Address: f.address, Default: !f.given, Hosts: f.hosts, Token: token}, err
}

// withoutToken is options for a console without a token, which others may reach only if all may.
func (f *consoleFlags) withoutToken(all bool) (host.Console, error) {
	if !all || f.address == "off" || !console.Built {
		return f.options()
	}
	return host.Console{Address: f.address, Hosts: f.hosts}, checkAddress("--console", f.address)
}

// readToken reads the token, which is required unless the address is loopback. A token
// consists of visible ASCII: it travels in a header.
func (f *consoleFlags) readToken() (string, error) {
	if err := checkAddress("--console", f.address); err != nil {
		return "", usageErrorf("%v; or off", err)
	}
	if f.tokenFile == "" {
		if !host.Loopback(f.address) {
			return "", usageErrorf("--console %s: others can connect there, so the console needs a token: give --console-token-file FILE, or an address like %s", f.address, consoleAddress)
		}
		return "", nil
	}
	token, err := host.ReadSecret(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--console-token-file: %w", err)
	}
	if len(token) < leastToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("--console-token-file %s: put one token into it, of at least %d letters and digits", f.tokenFile, leastToken)
	}
	return token, nil
}

// newConsoleCommand serves the console of a database elsewhere. It listens before it
// connects, so that an address in use is reported even while NATS is unreachable.
func newConsoleCommand(a *app) *cobra.Command {
	var conn connection
	f := consoleFlags{given: true}
	var write bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve the web console of a database",
		Long: `console serves web pages at 127.0.0.1:8280 until interrupted: status, collections, TTL,
forecasts, documents and the change feed of any database that the connection flags reach.
It is read-only without --write. lapse serve has a console of its own.`,
		Example: `  lapse console --context prod
  lapse console --server nats://n1:4222 --write --console 127.0.0.1:9000`,
		Args: arguments(0, 0),
	}
	conn.addFlags(cmd)
	f.add(cmd.Flags(), "")
	cmd.Flags().BoolVar(&write, "write", false, "permit changes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.address == "off" {
			return usageErrorf("--console off: give HOST:PORT, like %s", consoleAddress)
		}
		options, err := f.options()
		if err != nil {
			return err
		}
		served, err := options.Listen()
		if err != nil {
			return err
		}
		defer served.Close()
		lapse, hangUp, err := conn.connect(cmd.Context(), a.connectionNotices()...)
		if err != nil {
			return err
		}
		defer hangUp()
		log := a.openLog(logFlags{})
		defer log.close()
		defer served.Serve(lapse, write, log.Logger)()
		mode := "read-only"
		if write {
			mode = "with --write"
		}
		log.ready(fmt.Sprintf("database %s at %s, %s, console: %s", lapse.Database(), lapse.Conn().ConnectedUrlRedacted(), mode, served.URL), "")
		<-cmd.Context().Done()
		return nil
	}
	return cmd
}
