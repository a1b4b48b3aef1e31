package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// killAfter is how long a program that is to end at once may take before it is killed.
const killAfter = 20 * time.Second

// process is a program that runs.
type process struct {
	cmd *exec.Cmd
	// ended is closed when the program has ended; err, then, is what exec.Cmd.Wait says.
	ended chan struct{}
	err   error
}

// launch starts the command as the account. If this process is killed, the system sends the program the end signal.
func launch(cmd *exec.Cmd, as *account, end syscall.Signal) (*process, error) {
	if err := prepare(cmd, as, end); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The system takes the end of the thread that starts the program for the end of its parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// running tells if the program has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stop sends the signal and waits until the program has ended, or the context.
func (p *process) stop(ctx context.Context, signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the program: %w", err)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the program's end: %w", context.Cause(ctx))
	}
}

// end sends the signal, and kills the program if that does not end it.
func (p *process) end(signal os.Signal) error {
	timer := time.NewTimer(killAfter)
	defer timer.Stop()
	err := p.cmd.Process.Signal(signal)
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
	}
	if kill := p.cmd.Process.Kill(); kill != nil && !errors.Is(kill, os.ErrProcessDone) {
		return fmt.Errorf("kill the program: %w", errors.Join(err, kill))
	}
	<-p.ended
	return nil
}
