package pgserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// startLimit is for a slow machine where the server first recovers from a crash.
	startLimit = 90 * time.Second
	askEvery   = 20 * time.Millisecond
	askLimit   = 5 * time.Second
)

// errEnded is why waiting for a server is in vain.
var errEnded = errors.New("the program has ended")

// awaitReady waits until the server lets a client in. It returns errEnded when the program ends before that.
func awaitReady(ctx context.Context, p *process, address, user, database string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		err := login(ctx, address, user, database)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("wait until the server accepts connections: %w", errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}

// login opens a session without a password and leaves again.
func login(ctx context.Context, address, user, database string) error {
	dialer := net.Dialer{Timeout: askLimit}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return err
	}
	if _, err := conn.Write(startupMessage(user, database)); err != nil {
		return err
	}
	if err := awaitReadyForQuery(conn); err != nil {
		return err
	}
	_, err = conn.Write([]byte{'X', 0, 0, 0, 4})
	return err
}

// startupMessage is the first message of a session in version 3.0 of PostgreSQL's protocol.
func startupMessage(user, database string) []byte {
	message := binary.BigEndian.AppendUint32(make([]byte, 4), 3<<16)
	for _, text := range []string{"user", user, "database", database, ""} {
		message = append(append(message, text...), 0)
	}
	binary.BigEndian.PutUint32(message, uint32(len(message))) //nolint:gosec // Names are short.
	return message
}

// awaitReadyForQuery reads the server's messages up to the one that says that the session is open.
func awaitReadyForQuery(server io.Reader) error {
	const authentication, errorResponse, readyForQuery = 'R', 'E', 'Z'
	for {
		kind, body, err := readMessage(server)
		switch {
		case err != nil:
			return fmt.Errorf("read what the server says: %w", err)
		case kind == readyForQuery:
			return nil
		case kind == errorResponse:
			return fmt.Errorf("the server refuses the session: SQLSTATE %s", sqlState(body))
		case kind == authentication && !bytes.Equal(body, []byte{0, 0, 0, 0}):
			return errors.New("the server asks for a password")
		}
	}
}

// readMessage reads one message of the server.
func readMessage(server io.Reader) (kind byte, body []byte, err error) {
	const limit = 1 << 16
	var head [5]byte
	if _, err := io.ReadFull(server, head[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length < 4 || length > limit {
		return 0, nil, fmt.Errorf("a message of %d bytes", length)
	}
	body = make([]byte, length-4)
	_, err = io.ReadFull(server, body)
	return head[0], body, err
}

// sqlState finds the code in the fields of an error message.
func sqlState(body []byte) string {
	for field := range bytes.SplitSeq(body, []byte{0}) {
		if code, ok := bytes.CutPrefix(field, []byte{'C'}); ok {
			return string(code)
		}
	}
	return "unknown"
}
