// Package generators holds the test that AsyncAPI's own parser and generator take
// schema/asyncapi.yaml.
package generators
