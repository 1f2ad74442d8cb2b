package observe

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// listenerOf returns a listener of which each callback tells its name.
func listenerOf(tell func(name string)) *EventListener {
	l := &EventListener{}
	v := reflect.ValueOf(l).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			tell(name)
			return nil
		}))
	}
	return l
}

// callAll calls each callback with an info that says nothing.
func callAll(l *EventListener) (names []string) {
	v := reflect.ValueOf(l).Elem()
	for i := range v.NumField() {
		info := reflect.New(v.Field(i).Type().In(0)).Elem()
		switch info.Interface().(type) {
		case Rejection:
			info.Set(reflect.ValueOf(Rejection{Op: schema.DocumentUpsert, Fault: schema.ErrBadRequest}))
		case nil:
			info.Set(reflect.ValueOf(errors.New("an error")))
		}
		v.Field(i).Call([]reflect.Value{info})
		names = append(names, v.Type().Field(i).Name)
	}
	return names
}

// TestEventListener: whoever leaves callbacks out is not called, and two that
// listen are told everything, the first one first.
func TestEventListener(t *testing.T) {
	callAll((*EventListener)(nil).EnsureDefaults())
	callAll((&EventListener{}).EnsureDefaults())
	callAll(TeeEventListener(nil, nil))
	var told []string
	first := listenerOf(func(name string) { told = append(told, name+" first") })
	second := listenerOf(func(name string) { told = append(told, name+" second") })
	var want []string
	for _, name := range callAll(TeeEventListener(first, second)) {
		want = append(want, name+" first", name+" second")
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%s\nwant\n%s", told, want)
	}
	told, want = nil, nil
	for _, name := range callAll(first.EnsureDefaults()) {
		want = append(want, name+" first")
	}
	if !slices.Equal(told, want) {
		t.Errorf("with its defaults it is told\n%s\nwant\n%s", told, want)
	}
}

// TestLoggingEventListener: whatever happens has a line of its own in the log.
func TestLoggingEventListener(t *testing.T) {
	var logs bytes.Buffer
	l := LoggingEventListener(slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	v := reflect.ValueOf(l).Elem()
	said := make(map[string]string)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).IsNil() {
			t.Errorf("nothing is said of %s", name)
			continue
		}
		one := reflect.New(v.Type())
		one.Elem().Field(i).Set(v.Field(i))
		before := len(logs.String())
		callAll(one.Interface().(*EventListener).EnsureDefaults())
		line := logs.String()[before:]
		if strings.Count(line, "\n") != 1 || !strings.Contains(line, "msg=") {
			t.Errorf("%s says %q", name, line)
		}
		if other, ok := said[line]; ok && name != "FollowInReach" && name != "LogInReach" {
			t.Errorf("%s and %s say the same: %s", name, other, line)
		}
		said[line] = name
	}
}
