// Command sbom writes what a Go binary was built from as a CycloneDX document: the modules
// with versions and checksums that Go stores in the binary. It has no serial number and no
// time, so that the same binary gives the same bytes.
//
//	sbom BINARY FILE
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(binary, file string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(describe(info), "", "  ")
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

func describe(info *debug.BuildInfo) document {
	main := module("application", &info.Main)
	d := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{Component: main, Properties: []property{}}}
	for _, setting := range info.Settings {
		d.Metadata.Properties = append(d.Metadata.Properties, property{"go:build:" + setting.Key, setting.Value})
	}
	depends := dependency{Ref: main.Ref}
	add := func(c component) {
		d.Components = append(d.Components, c)
		depends.On = append(depends.On, c.Ref)
	}
	add(module("library", &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(module("library", m))
	}
	d.Depends = []dependency{depends}
	return d
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
