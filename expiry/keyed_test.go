package expiry

// keyed is a wheel whose timers are found by name, for tests.
type keyed struct {
	*Wheel[string]
	timers map[string]*Timer[string]
}

func newKeyed(now int64) keyed { return keyed{New[string](now), map[string]*Timer[string]{}} }

func (w keyed) timer(key string) *Timer[string] {
	if w.timers[key] == nil {
		w.timers[key] = &Timer[string]{Value: key}
	}
	return w.timers[key]
}

func (w keyed) Set(key string, at int64)    { w.Wheel.Set(w.timer(key), at) }
func (w keyed) Remove(key string)           { w.Wheel.Remove(w.timer(key)) }
func (w keyed) At(key string) (int64, bool) { return w.timer(key).At() }
func (w keyed) Advance(now int64, fire func(key string, at int64)) {
	w.Wheel.Advance(now, func(t *Timer[string], at int64) { fire(t.Value, at) })
}
