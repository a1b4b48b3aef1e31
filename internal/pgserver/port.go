package pgserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// A server keeps its port while it is down. So the port must not be one that the system gives to outgoing connections,
// which most systems take from 32768 or 49152 up: one of them would take it meanwhile, and a client that tries to
// connect to it could even reach itself.
const (
	firstPort = 15000
	endOfPort = 32000
)

// freePort returns a port of the loopback interface that nobody listens on at the moment.
func freePort(ctx context.Context) (int, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(endOfPort-firstPort)
		if last = tryPort(ctx, port); last == nil {
			return port, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return 0, fmt.Errorf("find a free port: %w", errors.Join(context.Cause(ctx), last))
}

// tryPort returns an error if a server could not listen on the port.
func tryPort(ctx context.Context, port int) error {
	listener, err := listen(ctx, loopback(port))
	if err != nil {
		return err
	}
	return listener.Close()
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
