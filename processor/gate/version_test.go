package gate

import "testing"

// TestSteerable: the versions of NATS that refuse no reply subjects below $JS.
func TestSteerable(t *testing.T) {
	for version, want := range map[string]bool{
		"2.9.25": true, "2.12.0": true, "2.14.9": true, "2.14.10-RC.1": true, "2.14.10": false, "2.14.11": false,
		"2.15.0-RC.1": true, "2.15.0": true, "2.15.2": true, "2.15.3": false, "2.15.10": false, "2.16.0": false, "3.0.0": false, "": false, "unknown": false,
	} {
		if got := Steerable(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
