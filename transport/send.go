package transport

import "context"

// Sender is the ability to send, for routes.
type Sender interface {
	// Send brings one message to a destination. It returns nil only when the
	// broker has said that it has taken the message durably and has routed it:
	// a message that the broker confirms and then returns or drops is
	// [ErrUnroutable].
	//
	// After an error the broker may still have the message. The transport
	// keeps nothing of it for later: whether and when to send again is up to
	// the caller, who asks [IsOutage] and [IsPermanent].
	//
	// Calls that run at the same time do not wait for each other's
	// confirmation. The caller sends the next message of a key only after the
	// one before was confirmed, so Send need not keep an order between calls.
	// Send neither keeps nor changes the slices of the message.
	Send(ctx context.Context, destination string, m Message) error
}
