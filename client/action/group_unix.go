//go:build unix

package action

import (
	"os/exec"
	"reflect"
	"syscall"
	"time"
)

// ownGroup lets a command be the first of a process group, which ends with this process where
// the system has that. The field is looked up by its name, since only Linux has it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if signal := reflect.ValueOf(cmd.SysProcAttr).Elem().FieldByName("Pdeathsig"); signal.IsValid() {
		signal.Set(reflect.ValueOf(syscall.SIGKILL))
	}
}

// endGroup ends the processes of a group: by SIGTERM, and after killDelay by SIGKILL. It
// waits until the group is gone or killed, so that no try runs while an old one does.
func endGroup(first *exec.Cmd) {
	group := -first.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	for deadline := time.Now().Add(killDelay); syscall.Kill(group, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if !time.Now().Before(deadline) {
			_ = syscall.Kill(group, syscall.SIGKILL)
			return
		}
	}
}
