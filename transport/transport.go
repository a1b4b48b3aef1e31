package transport

import "context"

// Transport is a connection to a broker, with everything needed to bring it
// back when it breaks.
type Transport interface {
	// Name tells the transports of one bus apart; routes and subscriptions
	// refer to it. It never changes.
	Name() string

	// Connect connects to the broker, and checks or declares what [Declarer]
	// was told. It returns when the transport is ready, or says what failed; a
	// failed Connect leaves nothing running and may be called again. From then
	// on the transport reconnects by itself, without end, until Close.
	//
	// A destination or source that is missing, or exists with other settings,
	// is [ErrConfiguration], and the text names it. A second Connect of a
	// connected transport is [ErrConfiguration], one after Close is [ErrClosed].
	Connect(ctx context.Context) error

	// Close stops every consumer as [Consumer.Stop] does, ends the Sends in
	// progress with [ErrClosed], disconnects, and joins every goroutine. It is
	// final, and may be called before Connect, by several goroutines at once
	// and again. When the context ends first it is [ErrTimeout] and the text
	// names the subscriptions that still run: what they handle is not
	// acknowledged, and only they are left. Another Close waits for them again.
	Close(ctx context.Context) error

	// Ready is nil when the transport can send and every consumer that was not
	// stopped receives. Otherwise it says why not, such as a broken connection
	// or a source that is gone. It answers at once from what is known.
	Ready() error

	// Features declares what this transport does not do.
	Features() Features
}

// Features declares the differences between transports. The zero value is a
// transport that does everything.
type Features struct {
	// Volatile: what was sent does not survive the process (the memory broker).
	Volatile bool
	// NoKeyOrder: messages of one key may be received in another order than
	// they were sent, or at the same time.
	NoKeyOrder bool
	// NoDeadLetter: there is no place for rejected messages;
	// [Subscription.DeadLetter] must be empty, and a rejected message is gone.
	NoDeadLetter bool
}

// Declarer is an optional ability: the bus tells the transport what it is going
// to use, once, before Connect.
type Declarer interface {
	// Declare records what Connect is to check at the broker, or to declare
	// there, now and after each reconnect; which of the two is up to the
	// transport's configuration. It does not touch the network. Names that the
	// broker can't have are [ErrConfiguration], all of them in one error.
	Declare(t Topology) error
}

// Topology is what a bus uses of a broker.
type Topology struct {
	// Destinations are the destinations of all routes, each once.
	Destinations []string
	// Subscriptions are all subscriptions. Their functions may be nil here.
	Subscriptions []Subscription
}
