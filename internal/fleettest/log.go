package fleettest

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// Entry is one line of a log that several processes write.
type Entry struct {
	// Process is the name of the process that wrote it.
	Process string `json:"process"`
	// At is the machine's clock in milliseconds.
	At int64 `json:"at"`
	// What is one of the words below.
	What string `json:"what"`

	Event    string `json:"event,omitempty"`
	Handler  string `json:"handler,omitempty"`
	Key      string `json:"key,omitempty"`
	Sequence int64  `json:"sequence,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	// Text is an error, a crash point, or a word about the entry.
	Text string `json:"text,omitempty"`

	// Now is the time that a claim or a renewal gave to the store, and Claims what it got, or holds still.
	Now    int64   `json:"now,omitempty"`
	Claims []Taken `json:"claims,omitempty"`
}

// Taken is the claim of a delivery; a renewal does not know its attempts.
type Taken struct {
	Event   string `json:"event"`
	Handler string `json:"handler"`
	// Generation counts the claims of the delivery that had ended before.
	Generation int64 `json:"generation"`
	Attempt    int   `json:"attempt,omitempty"`
	Lost       int   `json:"lost,omitempty"`
}

// What an entry says.
const (
	SaidUp         = "up"
	SaidStopping   = "stopping"
	SaidDown       = "down"
	SaidCrash      = "crash"
	SaidTrouble    = "trouble"
	SaidStall      = "stall"
	SaidOutage     = "outage"
	SaidClaim      = "claim"
	SaidRenewal    = "renewal"
	SaidStart      = "start"
	SaidEnd        = "end"
	SaidSucceeded  = "succeeded"
	SaidRetried    = "retried"
	SaidBuried     = "buried"
	SaidReleased   = "released"
	SaidLost       = "lost"
	SaidPublishing = "publishing"
	SaidCommitted  = "committed"
	SaidRolledBack = "rolled back"
	SaidUnknown    = "unknown"
	SaidOperated   = "operated"
	// SaidUndone is of a transactional handler that had returned without an error: its transaction ended with one.
	SaidUndone = "undone"
	SaidTurn   = "turn"
	// SaidFault and SaidMended are of the parent: it has begun to break the database, and the database serves again.
	SaidFault  = "fault"
	SaidMended = "mended"
	// SaidDead is of the parent: the process of that name was killed.
	SaidDead = "dead"
)

// Logbook is where a process writes what it does, before its next step: a killed process loses nothing of it. When all
// processes append to one file, the order of the lines is an order of what happened that needs no clock: a line that is
// above another was written before it.
type Logbook struct {
	process string
	file    *os.File
}

// OpenLog opens the log of a process; without a path that is the standard output.
func OpenLog(path, process string) (*Logbook, error) {
	if path == "" {
		return &Logbook{process: process, file: os.Stdout}, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Logbook{process: process, file: file}, nil
}

// Say writes an entry. It panics when it can't: without its log the process proves nothing.
func (l *Logbook) Say(e Entry) {
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

// ReadLog returns the entries of a log in their order, and how many lines are torn.
func ReadLog(t *testing.T, path string) (list []Entry, torn int) {
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
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			torn++
			continue
		}
		list = append(list, e)
	}
	return list, torn
}
