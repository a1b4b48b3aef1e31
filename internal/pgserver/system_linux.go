package pgserver

import (
	"os"
	"os/exec"
	"syscall"
)

// prepare makes the command run as the account, and end with the signal when the thread that starts it ends.
func prepare(cmd *exec.Cmd, as *account, end syscall.Signal) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: end}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	return nil
}

// lockDirectory returns an error if another process, or this one, has locked the directory.
func lockDirectory(dir string) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
