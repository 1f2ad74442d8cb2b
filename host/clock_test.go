package host

import "testing"

// TestBootOfTimeNamespace: a time namespace that shifts the time since boot is another boot.
func TestBootOfTimeNamespace(t *testing.T) {
	for _, c := range []struct{ id, offsets, want string }{
		{"b\n", "", "b"}, // a kernel without time namespaces
		{"b\n", "monotonic           0         0\nboottime            0         0\n", "b"},
		{"b\n", "monotonic           5         0\nboottime            0         0\n", "b"}, // is not read
		{"b\n", "monotonic      100000         0\nboottime       100000         0\n", "b 100000 0"},
		{"b\n", "monotonic           0         0\nboottime            0         1\n", "b 0 1"},
		{"", "monotonic      100000         0\nboottime       100000         0\n", ""},
	} {
		if got := bootOf(c.id, c.offsets); got != c.want {
			t.Errorf("boot %q with %q: %q, want %q", c.id, c.offsets, got, c.want)
		}
	}
}
