package processor

import "testing"

// TestSharedMemory: the databases of a process share what bounds its memory.
func TestSharedMemory(t *testing.T) {
	shared, release := Options{}.EnsureDefaults().Shared(2)
	defer release()
	a, b := shared.EnsureDefaults(), shared.EnsureDefaults()
	if a.held != b.held || a.conditions == nil || a.conditions != b.conditions || a.Projection.Cache != b.Projection.Cache {
		t.Errorf("%+v and %+v share less", a, b)
	}
}
