//go:build !race

package stress

const raced = false
