package sqlite_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// entry is one line of a log that several processes write.
type entry struct {
	// Process is the name of the process that wrote it.
	Process string `json:"process"`
	// At is the machine's clock in milliseconds.
	At   int64  `json:"at"`
	What string `json:"what"`

	Event    string `json:"event,omitempty"`
	Handler  string `json:"handler,omitempty"`
	Key      string `json:"key,omitempty"`
	Sequence int64  `json:"sequence,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	// Text is an error, a crash point, or a word about the entry.
	Text string `json:"text,omitempty"`

	// Now is the time that a claim or a renewal gave to the store, and Claims
	// what it got, or holds still.
	Now    int64   `json:"now,omitempty"`
	Claims []taken `json:"claims,omitempty"`
}

// taken is the claim of a delivery; a renewal does not know its attempts.
type taken struct {
	Event   string `json:"event"`
	Handler string `json:"handler"`
	// Generation counts the claims of the delivery that had ended before.
	Generation int64 `json:"generation"`
	Attempt    int   `json:"attempt,omitempty"`
	Lost       int   `json:"lost,omitempty"`
}

// What an entry says.
const (
	saidUp         = "up"
	saidStopping   = "stopping"
	saidDown       = "down"
	saidCrash      = "crash"
	saidTrouble    = "trouble"
	saidStall      = "stall"
	saidClaim      = "claim"
	saidRenewal    = "renewal"
	saidStart      = "start"
	saidEnd        = "end"
	saidSucceeded  = "succeeded"
	saidRetried    = "retried"
	saidBuried     = "buried"
	saidReleased   = "released"
	saidLost       = "lost"
	saidPublishing = "publishing"
	saidCommitted  = "committed"
	saidRolledBack = "rolled back"
	saidOperated   = "operated"
	saidTurn       = "turn"
)

// logbook is where a process writes what it does, before its next step: a
// killed process loses nothing of it. When all processes append to one file,
// the order of the lines is an order of what happened that needs no clock: a
// line that is above another was written before it.
type logbook struct {
	process string
	file    *os.File
}

func openLog(path, process string) (*logbook, error) {
	if path == "" {
		return &logbook{process: process, file: os.Stdout}, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &logbook{process: process, file: file}, nil
}

func (l *logbook) say(e entry) {
	e.Process, e.At = l.process, time.Now().UnixMilli()
	line, err := json.Marshal(e)
	if err == nil {
		// A process that is killed while it writes may leave a piece of a line.
		_, err = l.file.Write([]byte("\n" + string(line) + "\n"))
	}
	if err != nil {
		panic("write log: " + err.Error())
	}
}

// readLog returns the entries of a log in their order, and how many lines are
// torn.
func readLog(t *testing.T, path string) (list []entry, torn int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read log: %v", err)
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		var e entry
		if json.Unmarshal(line, &e) != nil {
			torn++
			continue
		}
		list = append(list, e)
	}
	return list, torn
}
