//go:build unix

package harness

import "syscall"

// freeze is the signal that stops a process until SIGCONT.
const freeze = syscall.SIGSTOP
