package pgserver_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// session is a client that knows just enough of PostgreSQL's protocol to send a simple query.
type session struct{ conn net.Conn }

// open fails the test when the server does not let the client in.
func open(t *testing.T, serverURL string) *session {
	t.Helper()
	s, err := tryOpen(t, serverURL)
	if err != nil {
		t.Fatalf("open a session: %v", err)
	}
	return s
}

func tryOpen(t *testing.T, serverURL string) (*session, error) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{conn: dial(t, u.Host)}
	body := binary.BigEndian.AppendUint32(nil, 3<<16)
	body = fmt.Appendf(body, "user\x00%s\x00database\x00%s\x00\x00", u.User.Username(), strings.TrimPrefix(u.Path, "/"))
	if err := s.write(framed(nil, body)); err != nil {
		return nil, err
	}
	_, err = s.receive()
	return s, err
}

// dial returns a connection that the test's end closes, and on which nothing takes for ever.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func (s *session) write(message []byte) error {
	_, err := s.conn.Write(message)
	return err
}

// query returns the first column of the rows.
func (s *session) query(t *testing.T, sql string) []string {
	t.Helper()
	rows, err := s.try(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

// try returns the first column of the rows, or an error of the server or the network.
func (s *session) try(sql string) ([]string, error) {
	if err := s.send(sql); err != nil {
		return nil, err
	}
	return s.receive()
}

func (s *session) send(sql string) error {
	return s.write(framed([]byte{'Q'}, append([]byte(sql), 0)))
}

// framed puts the message's length between its kind and its body.
func framed(kind, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(kind, uint32(len(body)+4)), body...) //nolint:gosec // Tests send little.
}

// receive reads the server's messages until it waits for the next query.
func (s *session) receive() (rows []string, err error) {
	for {
		var head [5]byte
		if _, broken := io.ReadFull(s.conn, head[:]); broken != nil {
			return rows, errors.Join(err, broken)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, broken := io.ReadFull(s.conn, body); broken != nil {
			return rows, errors.Join(err, broken)
		}
		switch head[0] {
		case 'D':
			if length := binary.BigEndian.Uint32(body[2:]); length != math.MaxUint32 { // which stands for NULL
				rows = append(rows, string(body[6:6+length]))
			}
		case 'E':
			err = fmt.Errorf("the server says %q", body)
		case 'Z':
			return rows, err
		}
	}
}
