package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nats-io/nkeys"

	"github.com/lapsedb/lapse/host"
)

// operatorKey returns the public nkey of the seed in file, which it makes if there is none.
// Every start with the same file has the same operator, so backups need no change after a
// restart. serve itself never logs in with the seed: it only needs the public half.
func operatorKey(file string) (public string, err error) {
	seed, err := host.ReadPassword(file)
	if errors.Is(err, fs.ErrNotExist) {
		if seed, err = makeSeed(file); err != nil {
			return "", fmt.Errorf("--operator-nkey-out: %w", err)
		}
	}
	if err != nil {
		return "", usageErrorf("--operator-nkey-out: %v", err)
	}
	key, err := nkeys.FromSeed([]byte(seed))
	if err == nil {
		public, err = key.PublicKey()
	}
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return "", usageErrorf("--operator-nkey-out %s: the file has no seed of a user, which begins with SU: give another file", file)
	}
	return public, nil
}

// makeSeed writes the seed of a new user, all of it or nothing: a crash leaves file.new,
// and the next start makes another. An empty file would be refused for ever.
func makeSeed(file string) (string, error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	seed, err := key.Seed()
	if err != nil {
		return "", err
	}
	// The mode of a file that exists already stays, hence Chmod; renaming makes the file
	// appear whole.
	if err := os.WriteFile(file+".new", append(seed, '\n'), 0o600); err != nil {
		return "", err
	}
	return string(seed), cmp.Or(os.Chmod(file+".new", 0o600), os.Rename(file+".new", file))
}
