//go:build !unix

package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// prepare fails: a server is stopped by Unix signals.
func prepare(*exec.Cmd, *account, syscall.Signal) error {
	return fmt.Errorf("start a program that only Unix signals stop: %w", errors.ErrUnsupported)
}

// lockDirectory locks nothing.
func lockDirectory(string) (*os.File, error) { return nil, nil }
