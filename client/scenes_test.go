package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness/inprocess"
)

// scene is a list of steps on a database of its own.
type scene struct {
	Name  string     `json:"name"`
	At    *time.Time `json:"at"` // where the clock begins
	Steps []step     `json:"steps"`
}

// step is a call, a move of the clock, or a comparison of the events since the last such step.
type step struct {
	call
	Advance json.RawMessage `json:"advance"`
	Events  json.RawMessage `json:"events"`
	Want    json.RawMessage `json:"want"`
	As      string          `json:"as"` // the name of the result for later steps
}

// TestScenes runs the scenes of schema/vectors against one server.
func TestScenes(t *testing.T) {
	t.Parallel()
	url, stop, err := inprocess.ServeTest(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	check(t, err)
	t.Cleanup(func() {
		check(t, stop())
	})
	files, err := filepath.Glob(client.VectorDir + "scenes/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for f, file := range files {
		name := filepath.Base(file)
		for i, s := range client.ReadVectors[scene](t, "scenes/"+name) {
			database := fmt.Sprintf("scene-%d-%d", f, i)
			t.Run(strings.TrimSuffix(name, ".json")+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				s.play(t, url, database)
			})
		}
	}
}

func (s scene) play(t *testing.T, url, database string) {
	nc, err := nats.Connect(url, nats.Timeout(patience))
	check(t, err)
	defer nc.Close()
	c, err := client.New(nc, client.WithDatabase(database), client.WithTimeout(patience))
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var at time.Time
	if s.At != nil {
		at = *s.At
	}
	check(t, c.TestClock().Open(ctx, at))
	defer func() { _ = c.TestClock().Drop(context.WithoutCancel(ctx)) }() // or a step has dropped it
	p := player{sdk: newSDK(c), results: make(map[string]any), next: 1}
	for i, step := range s.Steps {
		step, err := p.resolve(step)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		p.do(ctx, t, fmt.Sprintf("step %d, %s", i, step), step)
	}
}

func (s step) String() string {
	switch {
	case s.Advance != nil:
		return "advance " + string(s.Advance)
	case s.Events != nil:
		return "events"
	}
	return fmt.Sprintf("%s %s %s %s", s.Do, s.Collection, s.ID, s.Args)
}

// player runs the steps of a scene.
type player struct {
	*sdk
	results map[string]any // by name
	next    uint64         // sequence after the events that steps have compared
}

func (p *player) do(ctx context.Context, t *testing.T, name string, s step) {
	t.Helper()
	switch {
	case s.Advance != nil:
		s.call = call{Do: "advance", Args: []json.RawMessage{s.Advance}}
	case s.Events != nil:
		s.call = call{Do: "changes", Args: []json.RawMessage{fmt.Appendf(nil, `{"from":%d,"until":"now"}`, p.next)}}
		s.Want = s.Events
	}
	got, err := p.run(ctx, s.call)
	// A busy machine may not get to a read in time.
	for errors.Is(err, client.ErrTimeout) && !bytes.Contains(s.Want, []byte("504")) && slices.Contains([]string{"get", "history", "query", "count", "forecast"}, s.Do) && ctx.Err() == nil {
		got, err = p.run(ctx, s.call)
	}
	wantResult(t, name, s.Want, got, err)
	if s.Events != nil {
		events, _ := got.([]any)
		for _, e := range events {
			seq, _ := e.(map[string]any)["seq"].(json.Number).Int64()
			p.next = uint64(seq) + 1
		}
	}
	if s.As != "" {
		p.results[s.As] = got
	}
}

// resolve puts results of earlier steps in place of the texts that name them.
func (p *player) resolve(s step) (step, error) {
	parts := []*json.RawMessage{&s.Want, &s.Events}
	for i := range s.Args {
		parts = append(parts, &s.Args[i])
	}
	for _, part := range parts {
		if *part == nil {
			continue
		}
		value, err := decodeJSON(*part)
		if err != nil {
			return s, err
		}
		if value, err = p.replace(value); err != nil {
			return s, err
		}
		if *part, err = json.Marshal(value); err != nil {
			return s, err
		}
	}
	return s, nil
}

// replace returns a value with "$name.member" replaced by that member of a result, and
// {"$repeat":text,"times":n} by the repeated text.
func (p *player) replace(value any) (any, error) {
	switch value := value.(type) {
	case string:
		path, ok := strings.CutPrefix(value, "$")
		if !ok {
			return value, nil
		}
		var found any = p.results
		for name := range strings.SplitSeq(path, ".") {
			object, ok := found.(map[string]any)
			if !ok || object[name] == nil {
				return nil, fmt.Errorf("no step before has a result %s", value)
			}
			found = object[name]
		}
		return found, nil
	case []any:
		for i := range value {
			var err error
			if value[i], err = p.replace(value[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		if text, ok := value["$repeat"].(string); ok {
			times, err := value["times"].(json.Number).Int64()
			return strings.Repeat(text, int(times)), err
		}
		for name := range value {
			var err error
			if value[name], err = p.replace(value[name]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}
