//go:build unix && !linux

package pgserver

import (
	"os"
	"os/exec"
	"syscall"
)

// prepare makes the command run as the account. Here a program outlives a test process that is killed.
func prepare(cmd *exec.Cmd, as *account, _ syscall.Signal) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	return nil
}

// lockDirectory locks nothing: a directory whose program may still run must stay.
func lockDirectory(string) (*os.File, error) { return nil, nil }
