package transport

import (
	"context"
	"strings"
)

// Receiver is the ability to receive, for subscriptions.
type Receiver interface {
	// Subscribe begins to receive. It returns when the broker has accepted the
	// consumer; a source that is missing is [ErrConfiguration]. A consumer whose
	// connection or source breaks later is brought back by the transport, and
	// [Consumer.Ready] says so meanwhile.
	Subscribe(ctx context.Context, s Subscription) (Consumer, error)
}

// Subscription says what to receive and what becomes of it.
type Subscription struct {
	// ID names the subscription. Processes that subscribe with the same ID
	// share the messages of the source among them. Whether another ID gets its
	// own copy of each message is the broker's affair (a Kafka topic: yes; a
	// queue: no).
	ID string
	// Source is where the messages come from, in the broker's terms.
	Source string
	// DeadLetter is the destination to which rejected messages are moved
	// before they are acknowledged. "" leaves them to what the broker itself
	// does with rejected messages, which may be to drop them.
	DeadLetter string
	// InFlight is the most messages that are handed over and not acknowledged,
	// those that wait to be handed over again included; 0 stands for 1. The
	// transport fetches no more than this ahead.
	InFlight int

	// Receive gets each message. nil acknowledges it. An error that matches
	// [ErrReject] rejects it: it is never handed over again, and goes to
	// DeadLetter. Any other error leaves it unacknowledged: the transport keeps
	// it, calls Backoff and hands it over again, without giving it back to the
	// broker, so that the messages of its key stay in order and no limit of
	// the broker's counts the attempts.
	//
	// Messages of one key are handed over one at a time, in the broker's order
	// (see [Features]); up to InFlight others run at the same time.
	//
	// The context ends when the message is no longer this consumer's to
	// acknowledge (the connection broke, the partition moved), and when the
	// context of a Stop ends. What Receive returns after that is discarded, and
	// the broker delivers the message again. Receive never panics: the bus sees
	// to that.
	Receive func(ctx context.Context, in Inbound) error

	// Backoff waits before a message is handed over again. failures counts
	// from 1, the times in a row that Receive has failed for this message. It
	// returns early when the context ends, which Stop sees to. A transport has
	// no delays and no clock of its own for this.
	Backoff func(ctx context.Context, failures int) error
}

// Validate returns nil, or [ErrConfiguration] with everything that is wrong.
// Subscribe calls it first.
func (s Subscription) Validate() error {
	var wrong []string
	if s.ID == "" {
		wrong = append(wrong, "ID is empty")
	}
	if s.Source == "" {
		wrong = append(wrong, "Source is empty")
	}
	if s.InFlight < 0 {
		wrong = append(wrong, "InFlight is negative")
	}
	if s.Receive == nil {
		wrong = append(wrong, "Receive is nil")
	}
	if s.Backoff == nil {
		wrong = append(wrong, "Backoff is nil")
	}
	if wrong == nil {
		return nil
	}
	return NewError("check subscription", ErrConfiguration, strings.Join(wrong, ", "), nil)
}

// Consumer is a running subscription.
type Consumer interface {
	// Stop takes no further message, ends the waiting of Backoff, and waits for
	// the calls of Receive in progress, whose results count. It is final, and
	// may be called by several goroutines at once and again. When the context
	// ends first it is [ErrTimeout]: the contexts of the calls are ended, and
	// their messages are left unacknowledged. Another Stop waits for them again.
	Stop(ctx context.Context) error

	// Ready is nil while messages are received; otherwise it says why not, and
	// is [ErrClosed] after Stop. It answers at once from what is known.
	Ready() error
}
