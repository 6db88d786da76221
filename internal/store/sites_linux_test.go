package store_test

import (
	"os/exec"
	"syscall"
)

// dieWithParent has a process end with this one, however that ends.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
