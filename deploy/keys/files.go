package main

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// files writes files with mode 0600, until the first error. A caller need not look at each
// error: after the first nothing is written.
type files struct {
	dir string
	err error
}

func (f *files) write(name string, content []byte) {
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	if f.err == nil {
		f.err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if f.err == nil {
		f.err = os.WriteFile(path, content, 0o600)
	}
}

// fail records an error, if it is the first.
func (f *files) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func randomText() string { return rand.Text() }

// nobody is the user and group of the containers if root makes the keys without sudo.
const nobody = 65532

// owner is the user of the containers, which must be able to read the keys.
type owner struct {
	uid, gid int
	root     bool
}

// chooseOwner returns the user that runs the command, or has called sudo: who makes the keys
// uses them. A root that is nobody else gets keys for nobody.
func chooseOwner() owner {
	o := owner{uid: os.Getuid(), gid: os.Getgid()}
	if o.uid > 0 {
		return o
	}
	o = owner{uid: nobody, gid: nobody, root: o.uid == 0} // or a system without user ids
	uid, uidErr := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, gidErr := strconv.Atoi(os.Getenv("SUDO_GID"))
	if o.root && uidErr == nil && gidErr == nil && uid > 0 {
		o.uid, o.gid = uid, gid
	}
	return o
}

// take changes the owner of everything below dir. Only root can give files away; for
// anyone else they have the right owner already.
func (o owner) take(dir string) error {
	if !o.root {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, o.uid, o.gid)
	})
}

// makeDataDirs makes the missing data directories of the containers. They are empty
// directories of the containers' user: Docker would make missing ones for root, and the
// containers could not write there.
func makeDataDirs(dir string, o owner) error {
	for _, name := range []string{"nats-1", "nats-2", "nats-3", "lapse-1", "lapse-2", "prometheus", "grafana"} {
		path := filepath.Join(dir, "data", name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		if err := o.take(path); err != nil {
			return err
		}
	}
	return nil
}
