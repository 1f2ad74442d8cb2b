package main

import (
	"os"
	"testing"
)

// TestOwner: keys that root makes by sudo are readable for the user who called it, and those
// of another root for the user of the containers.
func TestOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for sudo, want := range map[string]int{"1000": 1000, "": nobody, "0": nobody, "x": nobody} {
		t.Setenv("SUDO_UID", sudo)
		t.Setenv("SUDO_GID", sudo)
		if o := chooseOwner(); !o.root || o.uid != want || o.gid != want {
			t.Errorf("SUDO_UID=%s: %+v", sudo, o)
		}
	}
}
