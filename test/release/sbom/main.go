// Command sbom writes what a program consists of as a CycloneDX document: of a Go binary the
// modules with versions and checksums that Go stores in it, of an npm package those of its
// package-lock.json, of a Python wheel the distributions that it requires. It has no serial
// number and no time, so that the same input gives the same bytes.
//
//	sbom BINARY|package-lock.json|WHEEL FILE
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY|package-lock.json|WHEEL FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(input, file string) error {
	of := binary
	switch {
	case filepath.Base(input) == "package-lock.json":
		of = npm
	case filepath.Ext(input) == ".whl":
		of = wheel
	}
	d, err := of(input)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// A document is one of CycloneDX 1.6, as far as Go knows what belongs into it.
type document struct {
	Format     string       `json:"bomFormat"`
	Spec       string       `json:"specVersion"`
	Version    int          `json:"version"`
	Metadata   metadata     `json:"metadata"`
	Components []component  `json:"components"`
	Depends    []dependency `json:"dependencies"`
}

type metadata struct {
	Component  component  `json:"component"`
	Properties []property `json:"properties"` // how it was built
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	URL     string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// describe returns the document of a component that consists of others.
func describe(main component, of []component) document {
	depends := dependency{Ref: main.Ref}
	for _, c := range of {
		depends.On = append(depends.On, c.Ref)
	}
	return document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{Component: main, Properties: []property{}},
		Components: of, Depends: []dependency{depends}}
}

func binary(file string) (d document, err error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return d, err
	}
	of := []component{module("library", &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		of = append(of, module("library", m))
	}
	d = describe(module("application", &info.Main), of)
	for _, setting := range info.Settings {
		d.Metadata.Properties = append(d.Metadata.Properties, property{"go:build:" + setting.Key, setting.Value})
	}
	return d, nil
}

func module(kind string, m *debug.Module) component {
	url := "pkg:golang/" + m.Path
	if m.Version != "" {
		url += "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	}
	c := component{Type: kind, Ref: url, Name: m.Path, Version: m.Version, URL: url}
	// A checksum of go.sum is the SHA-256 of the module's list of files and their hashes.
	if sum, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		if raw, err := base64.StdEncoding.DecodeString(sum); err == nil {
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(raw)}}
		}
	}
	return c
}
