// Package generators tests that AsyncAPI's own parser and generator accept
// schema/asyncapi.yaml.
package generators
