//go:build !linux

package embedded

import "os"

const sharedMemory = ""

func inMemory(string, uint64) bool { return false }

func lockDir(string) *os.File { return nil }
