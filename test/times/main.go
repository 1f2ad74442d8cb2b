// Command times reads the output of go test -json, prints it as go test does without -v,
// and appends a line for each test to the file that its argument names: its seconds,
// package and name, or "skip", package and name. It fails if a package failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is a line of go test -json, as go doc test2json describes it.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func main() {
	file, err := os.OpenFile(os.Args[1], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		err = report(os.Stdin, os.Stdout, file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "times:", err)
		os.Exit(1)
	}
}

func report(in io.Reader, out, times io.Writer) error {
	failed := 0
	output := make(map[string]string) // of running tests, with their subtests
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			if _, err := out.Write(line); err != nil { // output of the compiler
				return err
			}
			continue
		}
		name, _, sub := strings.Cut(e.Test, "/")
		key := e.Package + " " + name
		switch e.Action {
		case "output", "build-output":
			if name != "" {
				output[key] += e.Output
			} else if e.Output != "PASS\n" {
				fmt.Fprint(out, e.Output)
			}
		case "build-fail":
			failed++
		case "pass", "fail", "skip":
			if name == "" {
				if e.Action == "fail" {
					failed++
					for one, text := range output { // of tests that ran when the package ended
						if strings.HasPrefix(one, key) {
							fmt.Fprint(out, text)
						}
					}
				}
				continue
			}
			if sub {
				continue
			}
			if e.Action == "fail" {
				fmt.Fprint(out, output[key])
			}
			delete(output, key)
			took := fmt.Sprintf("%.1f", e.Elapsed)
			if e.Action == "skip" {
				took = "skip"
			}
			if _, err := fmt.Fprintln(times, took, key); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d packages failed", failed)
	}
	return nil
}
