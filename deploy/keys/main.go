// Command keys makes the secrets of nats.conf and docker-compose.yml: nkeys for the
// users, certificates for the nodes, and a file of environment variables with the public
// keys. It overwrites nothing.
//
//	go run ./deploy/keys
//
// What it makes below -dir:
//
//	secrets/nkeys/<user>.nk          a seed for each user of nats.conf
//	secrets/ca.pem, route-ca.pem     whom clients and nodes trust
//	secrets/nats-1/cert.pem, …       certificates of the nodes
//	secrets/.env                     public keys, user ids, a password for Grafana
//	data/…                           directories of the containers
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	dir := flag.String("dir", "deploy", "make secrets and data below `DIR`")
	hosts := flag.String("hosts", "localhost,127.0.0.1,::1", "certificates also name these `HOST`[,HOST…], by which clients and other nodes reach the nodes: those of --nats-url, NATS_ROUTE_1 to 3 and NATS_CLUSTER_ADVERTISE")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "keys: only flags are accepted: see -help")
		os.Exit(2)
	}
	if err := run(*dir, strings.Split(*hosts, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

// run makes everything in a temporary directory and renames it at the end: all or
// nothing.
func run(dir string, hosts []string) error {
	secrets := filepath.Join(dir, "secrets")
	if _, err := os.Lstat(secrets); err == nil {
		return fmt.Errorf("%s exists and is not overwritten, which would lock out its users: move it away first", secrets)
	} else if !os.IsNotExist(err) {
		return err
	}
	made, err := os.MkdirTemp(dir, "secrets.*.tmp") // accessible to its owner only
	if err != nil {
		return fmt.Errorf("cannot write below %s: %w; choose another -dir", dir, err)
	}
	defer os.RemoveAll(made)
	f := &files{dir: made}
	env := makeUsers(f)
	makeCertificates(f, hosts)
	owner := chooseOwner()
	env = append(env, fmt.Sprintf("LAPSE_UID=%d", owner.uid), fmt.Sprintf("LAPSE_GID=%d", owner.gid), "GRAFANA_PASSWORD="+randomText())
	f.write(".env", []byte(strings.Join(env, "\n")+"\n"))
	if f.err != nil {
		return f.err
	}
	if err := owner.take(made); err != nil {
		return err
	}
	if err := os.Rename(made, secrets); err != nil {
		return err
	}
	if err := makeDataDirs(dir, owner); err != nil {
		return err
	}
	fmt.Printf("made %s, good for %d days: keep a copy where nobody reads it\n", secrets, lifeDays)
	if owner.root {
		fmt.Printf("they belong to user %d, as whom the containers run; for another one: chown -R USER %s %s and set LAPSE_UID and LAPSE_GID in .env\n", owner.uid, secrets, filepath.Join(dir, "data"))
	}
	fmt.Printf("NATS_CLUSTER_ADVERTISE of each node must be one of nats-1, nats-2, nats-3, %s, with its port\n", strings.Join(hosts, ", "))
	return nil
}
