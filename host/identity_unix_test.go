//go:build unix

package host

import "testing"

// TestIdentityOfCopy: another directory with the same files has an identity of its own.
func TestIdentityOfCopy(t *testing.T) {
	dir := t.TempDir()
	if id := identityOf(dir); id == "" || id != identityOf(dir+"/.") || id == identityOf(t.TempDir()) {
		t.Errorf("identity %q", id)
	}
}
