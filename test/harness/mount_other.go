//go:build !linux

package harness

import "errors"

func mountMemory(string, int) error { return errors.ErrUnsupported }

func unmount(string) error { return nil }
