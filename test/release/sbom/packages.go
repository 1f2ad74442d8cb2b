package main

import (
	"archive/zip"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/mail"
	"os"
	"regexp"
	"slices"
	"strings"
)

// npm describes the package of a package-lock.json: what is installed with it, at the
// versions with which it is tested.
func npm(file string) (d document, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return d, err
	}
	var lock struct {
		Name, Version string
		Packages      map[string]struct {
			Version, Integrity string
			Dev, Peer          bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return d, fmt.Errorf("%s: %w", file, err)
	}
	var of []component
	for path, p := range lock.Packages {
		if path == "" || p.Dev || p.Peer {
			continue
		}
		c := library("npm", path[strings.LastIndex(path, "node_modules/")+len("node_modules/"):], p.Version)
		if sum, ok := strings.CutPrefix(p.Integrity, "sha512-"); ok {
			if raw, err := base64.StdEncoding.DecodeString(sum); err == nil {
				c.Hashes = []hash{{"SHA-512", hex.EncodeToString(raw)}}
			}
		}
		of = append(of, c)
	}
	slices.SortFunc(of, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	return describe(library("npm", lock.Name, lock.Version), of), nil
}

// distribution matches the name of what a wheel requires; those of an extra have a marker.
var distribution = regexp.MustCompile(`^([A-Za-z0-9._-]+)[^;]*$`)

// wheel describes a Python wheel by its metadata, which name ranges instead of versions.
func wheel(file string) (d document, err error) {
	files, err := zip.OpenReader(file)
	if err != nil {
		return d, err
	}
	defer files.Close()
	names, err := fs.Glob(files, "*.dist-info/METADATA")
	if err != nil || len(names) != 1 {
		return d, fmt.Errorf("%s: its metadata are %q", file, names)
	}
	text, err := files.Open(names[0])
	if err != nil {
		return d, err
	}
	defer text.Close()
	about, err := mail.ReadMessage(text)
	if err != nil {
		return d, fmt.Errorf("%s: %w", file, err)
	}
	var of []component
	for _, requirement := range about.Header["Requires-Dist"] {
		if m := distribution.FindStringSubmatch(requirement); m != nil {
			of = append(of, library("pypi", m[1], ""))
		}
	}
	return describe(library("pypi", about.Header.Get("Name"), about.Header.Get("Version")), of), nil
}

// library returns a package of npm or PyPI.
func library(kind, name, version string) component {
	url := "pkg:" + kind + "/" + strings.ReplaceAll(name, "@", "%40")
	if version != "" {
		url += "@" + version
	}
	return component{Type: "library", Ref: url, Name: name, Version: version, URL: url}
}
