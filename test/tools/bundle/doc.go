// Package bundle bundles the libraries of the console's pages from their npm packages.
package bundle
