// Package transport is the contract between the bus and a message broker.
//
// A transport carries events in two directions. For a route the bus calls
// [Sender.Send], from a durable delivery that it completes only after Send has
// returned nil. For a subscription the transport hands every message of a
// source to [Subscription.Receive], which appends it to the store, and
// acknowledges it at the broker only after Receive has returned nil. So both
// ways are at least once, and the event id, which never changes on the way, is
// what duplicates are recognised by.
//
// The bus does everything that is the same for every broker: retries, backoff
// and its clock, attempts, dead letters of routes, deduplication, validation of
// payloads, the choice what becomes of a bad message. A transport translates,
// confirms, reconnects, and says precisely what went wrong.
//
// The contract is a set of small interfaces by job. Every transport is a
// [Transport]; it is a [Sender], a [Receiver] or both, and may be a [Declarer].
// The bus finds these by type assertion, and refuses a route over a transport
// that does not send and a subscription over one that does not receive.
//
// There is no method for sending many messages at once. Each message belongs
// to a delivery of its own with a result of its own, the bus calls Send from
// many goroutines at a time, and both protocols that matter pipeline such
// calls: what would be a batch is put together inside the transport.
//
// Rules that hold for every method:
//
//   - A context bounds the call that gets it and nothing else: what Connect and
//     Subscribe have started lives on when their context ends.
//   - Every error is, or wraps, an [*Error] that carries one of the classes of
//     this package. No text holds a payload, a credential or a connection string.
//   - All methods may be called by many goroutines at once.
//   - No goroutine outlives a Close or Stop that returned nil.
package transport
