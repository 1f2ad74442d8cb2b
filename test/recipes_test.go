package test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/conform"
	"github.com/lapsedb/lapse/test/harness"
)

// recipes returns docs/recipes.md, and its blocks of a language as one program.
func recipes(t *testing.T, language string) (page, program string) {
	t.Helper()
	text, err := os.ReadFile("../docs/recipes.md")
	check(t, err)
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		program += block[1] + "\n"
	}
	if program == "" {
		t.Fatalf("docs/recipes.md has no %s", language)
	}
	return string(text), program
}

// expectation is the output that a line of a recipe promises.
var expectation = regexp.MustCompile(`(?m)(?:#|//) → (.*)$`)

// TestRecipesOfCLI: the requests of the recipes for the nats CLI, sent without it, return
// what the page says.
func TestRecipesOfCLI(t *testing.T) {
	t.Parallel()
	_, script := recipes(t, "sh")
	cli := &fakeCLI{T: t, nc: dial(t, harness.Serve(t))}
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		expected := expectation.FindStringSubmatch(line)
		words := split(t, strings.TrimSpace(expectation.ReplaceAllString(line, "")))
		if len(words) == 0 {
			continue
		}
		printed := cli.run(words)
		if expected != nil && !strings.Contains(printed, strings.TrimSpace(expected[1])) {
			t.Errorf("%s\nprints %s", line, printed)
		}
		if expected == nil && strings.Contains(printed, `"error":`) {
			t.Errorf("%s\nprints %s and the page says nothing", line, printed)
		}
	}
}

// split splits a command line into plain and 'quoted' words.
func split(t *testing.T, line string) (words []string) {
	t.Helper()
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " ") {
		word, rest, _ := strings.Cut(line, " ")
		if quoted, is := strings.CutPrefix(line, "'"); is {
			var closed bool
			if word, rest, closed = strings.Cut(quoted, "'"); !closed {
				t.Fatalf("a quote is open: %s", line)
			}
		} else if strings.ContainsAny(word, "'\"$`\\|&;<>()") {
			t.Fatalf("more of a shell than this test knows: %s", word)
		}
		words, line = append(words, word), rest
	}
	return words
}

// fakeCLI does what the nats CLI does, as far as the recipes need it.
type fakeCLI struct {
	*testing.T
	nc *nats.Conn
}

func (c *fakeCLI) run(words []string) (printed string) {
	c.Helper()
	switch command := strings.Join(words[:2], " "); {
	case words[0] == "sleep":
		return "" // next waits for messages as long as it takes
	case command == "nats req" || command == "nats pub":
		return c.send(words[1], words[2:])
	case command == "nats consumer" && len(words) == 5 && words[2] == "next":
		return c.next(words[3], words[4])
	case command == "nats consumer" && len(words) > 5 && words[2] == "add":
		return c.add(words[3], words[4], words[5:])
	}
	c.Fatalf("unknown command: %v", words)
	return ""
}

func (c *fakeCLI) send(how string, words []string) string {
	c.Helper()
	m := &nats.Msg{Header: nats.Header{}}
	stored := false
	for len(words) > 2 {
		switch words[0] {
		case "-H":
			name, value, _ := strings.Cut(words[1], ":")
			m.Header[name] = []string{value}
			words = words[1:]
		case "-J":
			stored = true
		default:
			c.Fatalf("unknown option: %v", words)
		}
		words = words[1:]
	}
	m.Subject, m.Data = words[0], []byte(words[1])
	if stored != (how == "pub") {
		c.Fatalf("%s to %s: only what is published waits for a PubAck", how, m.Subject)
	}
	c.described(m)
	answer, err := c.nc.RequestMsg(m, patience)
	if err != nil {
		c.Fatalf("%s: %v", m.Subject, err)
	}
	if stored {
		var ack struct {
			Stream string
			Seq    uint64
		}
		if err := conform.Schema("PubAck", answer.Data); err != nil {
			c.Error(err)
		}
		check(c, json.Unmarshal(answer.Data, &ack))
		return fmt.Sprintf("Stored in Stream: %s Sequence: %d", ack.Stream, ack.Seq)
	}
	return show(answer.Header) + string(answer.Data)
}

// described checks a message to send against asyncapi.yaml.
func (c *fakeCLI) described(m *nats.Msg) {
	c.Helper()
	channels := conform.Channels(m.Subject)
	if len(channels) != 1 {
		c.Fatalf("%s is of the channels %v", m.Subject, channels)
	}
	var err error
	if operation, ok := strings.CutPrefix(channels[0], "mutations."); ok {
		err = conform.Mutation(operation, m.Header, m.Data)
	} else {
		err = conform.Request(operation, m.Header, m.Data)
	}
	if err != nil {
		c.Errorf("%s %s: %v", m.Subject, m.Data, err)
	}
}

func (c *fakeCLI) next(stream, name string) string {
	c.Helper()
	js, err := jetstream.New(c.nc)
	check(c, err)
	consumer, err := js.Consumer(c.Context(), stream, name)
	check(c, err)
	m, err := consumer.Next(jetstream.FetchMaxWait(patience))
	check(c, err)
	if err := conform.Event(m.Subject(), m.Headers(), m.Data()); err != nil {
		c.Error(err)
	}
	meta, err := m.Metadata()
	if err == nil {
		err = m.DoubleAck(c.Context())
	}
	check(c, err)
	return fmt.Sprintf("str seq: %d\n", meta.Sequence.Stream) + show(m.Headers()) + string(m.Data())
}

// add creates a pull consumer with the defaults of the nats CLI.
func (c *fakeCLI) add(stream, name string, flags []string) string {
	c.Helper()
	js, err := jetstream.New(c.nc)
	check(c, err)
	config := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}
	options := flag.NewFlagSet("add", flag.ContinueOnError)
	options.Bool("pull", false, "")
	options.Bool("defaults", false, "")
	options.StringVar(&config.FilterSubject, "filter", "", "")
	options.IntVar(&config.MaxAckPending, "max-pending", 0, "")
	options.Uint64Var(&config.OptStartSeq, "deliver", 0, "")
	check(c, options.Parse(flags))
	printed := fmt.Sprintf("Information for Consumer %s > %s\n", stream, name)
	if config.OptStartSeq > 0 {
		config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		printed += fmt.Sprintf("Deliver Policy: From Sequence %d\n", config.OptStartSeq)
	}
	if _, err := js.CreateConsumer(c.Context(), stream, config); err != nil {
		c.Fatal(err)
	}
	return printed
}

func show(headers nats.Header) string {
	var b strings.Builder
	for name, values := range headers {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(values, ", "))
	}
	return b.String()
}

// checkPrinted checks that a program printed the output on its page, in that order.
func checkPrinted(t *testing.T, program, printed string) {
	t.Helper()
	expected := expectation.FindAllStringSubmatch(program, -1)
	if len(expected) == 0 {
		t.Error("the page does not say what is printed")
	}
	rest := printed
	for _, one := range expected {
		_, after, ok := strings.Cut(rest, strings.TrimSpace(one[1]))
		if !ok {
			t.Fatalf("%q is not printed, or not in its place:\n%s", one[1], printed)
		}
		rest = after
	}
}
