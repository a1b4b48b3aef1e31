package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// serverProcess is the first process of a PostgreSQL server on this machine. Each
// connection has a process, a child of it.
type serverProcess struct{ pid string }

// findServerProcess returns an error for a server elsewhere, a role that may not
// ask for it, and a system without the files of Linux.
func findServerProcess(ctx context.Context, conn *pgx.Conn) (*serverProcess, error) {
	var file string
	if err := conn.QueryRow(ctx, "SELECT pg_read_file('postmaster.pid')").Scan(&file); err != nil {
		return nil, err
	}
	pid, rest, _ := strings.Cut(file, "\n")
	s := &serverProcess{pid: strings.TrimSpace(pid)}
	directory, _, _ := strings.Cut(rest, "\n")
	// A process of that number on another machine is not the server.
	if where, err := os.Readlink("/proc/" + s.pid + "/cwd"); err != nil || where != directory {
		return nil, errors.Join(err, fmt.Errorf("process %s does not work in %s", s.pid, directory))
	}
	_, err := s.read()
	return s, err
}

// processorTime is what all processes of the server have used, also those that
// ended; 0 when it can't be read any more.
func (s *serverProcess) processorTime() time.Duration {
	used, err := s.read()
	if err != nil {
		return 0
	}
	return used
}

func (s *serverProcess) read() (used time.Duration, err error) {
	ended, err := ticksOf(s.pid)
	if err != nil {
		return 0, err
	}
	children, err := os.ReadFile("/proc/" + s.pid + "/task/" + s.pid + "/children")
	if err != nil {
		return 0, err
	}
	used = ended
	for _, pid := range append(strings.Fields(string(children)), s.pid) {
		text, err := os.ReadFile("/proc/" + pid + "/schedstat")
		if errors.Is(err, os.ErrNotExist) {
			continue // It has just ended.
		}
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(text), " ")
		nanoseconds, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, err
		}
		used += time.Duration(nanoseconds)
	}
	return used, nil
}

// ticksOf returns what the children used that have ended.
func ticksOf(pid string) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	// The name of the program, in brackets, may have any characters.
	_, rest, found := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const user, system = 13, 14 // cutime and cstime, in hundredths of a second
	if !found || len(fields) <= system {
		return 0, errors.New("the file is not as expected")
	}
	sum := int64(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond, nil
}
