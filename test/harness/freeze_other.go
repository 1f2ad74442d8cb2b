//go:build !unix

package harness

import "syscall"

// freeze would stop a process until SIGCONT; here nothing can, and Process.Signal refuses.
const freeze = syscall.SIGTERM
