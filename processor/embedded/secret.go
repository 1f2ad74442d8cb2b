package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Files with passwords, tokens and keys have one line each, so that an editor, echo and a
// secrets manager can all make them; a line end at the end does not count. No error repeats
// what is in them: errors go to logs.

// ReadSecret returns what a file with a password, token or key says: its only line, without
// space around it. Its errors say what to do, and nothing of the content.
func ReadSecret(name string) (string, error) {
	text, err := ReadFile(name)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return "", fmt.Errorf("%s: %w", name, failed.Err)
	}
	if err != nil {
		return "", err
	}
	switch text = bytes.TrimSpace(text); {
	case len(text) == 0:
		return "", fmt.Errorf("%s is empty: put one line into it", name)
	case bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' }):
		return "", fmt.Errorf("%s has more than one line: put one into it", name)
	}
	return string(text), nil
}

// othersMay are the permissions that a file with a password must not have: those of everybody,
// and that of its group to write.
const othersMay fs.FileMode = 0o027

// ReadPassword is ReadSecret of a file that nobody but its owner and group may read, and
// nobody but its owner write. systemd protects $CREDENTIALS_DIRECTORY.
func ReadPassword(name string) (string, error) {
	if err := checkPrivate(name); err != nil {
		return "", err
	}
	return ReadSecret(name)
}

// checkPrivate returns an error if others than the owner may read the file, or its group
// may write it. A group may read: service managers give files to a group. It says which
// mode the file has, and gives the command to change it. Windows has no such modes.
func checkPrivate(name string) error {
	info, err := os.Stat(name)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", name, failed.Err)
	}
	if runtime.GOOS == "windows" || info.Mode()&othersMay == 0 || belowCredentials(name) {
		return nil
	}
	return fmt.Errorf("others may read or write %s (%04o): chmod 600 %s", name, info.Mode().Perm(), name)
}

// belowCredentials reports whether a file is one of systemd's credentials.
func belowCredentials(name string) bool {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return false
	}
	path, err := filepath.Abs(name)
	return err == nil && strings.HasPrefix(path, filepath.Clean(dir)+string(filepath.Separator))
}
