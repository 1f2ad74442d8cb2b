package gate

import (
	"reflect"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// refused are the fields of a consumer that clients must leave out: consumers of
// these kinds count towards no limit of the server.
var refused = []string{"Direct", "Sourcing"}

// TestEveryFieldHasARule: each consumer field of the server has a rule or is refused.
// Until a field of a new server version has one, check refuses it.
func TestEveryFieldHasARule(t *testing.T) {
	all := reflect.VisibleFields(reflect.TypeFor[server.ConsumerConfig]())
	for _, field := range all {
		if _, allowed := rules[field.Name]; allowed == slices.Contains(refused, field.Name) {
			t.Errorf("%s: give it a rule, or put it among those that are refused", field.Name)
		}
	}
	if len(all) != len(rules)+len(refused) {
		t.Errorf("%d fields, %d rules and %d refused", len(all), len(rules), len(refused))
	}
	var request []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[server.CreateConsumerRequest]()) {
		request = append(request, field.Name)
	}
	if !slices.Equal(request, []string{"Stream", "Config", "Action", "Pedantic"}) {
		t.Errorf("a request has %v: see what the new ones do", request)
	}
}
