// Package dispatch claims deliveries, runs handlers, and settles what came of
// them. It knows stores and leases; it does not know events, payloads or retry
// policies, which the bus passes in as functions.
//
// # How it works
//
// An [Engine] has one mutex around its bookkeeping and never holds it while it
// calls the store, a handler or an observer. Up to four goroutines serve it:
//
//   - fetch claims deliveries while there are slots for them, and a few ahead
//     for handlers that work them off quickly;
//   - settle ends claims in batches: it waits a moment for others that finish
//     close together, but not when somebody waits for the outcome;
//   - renew extends the leases of everything claimed, and cancels what lost its
//     lease or can't be renewed in time;
//   - wake listens to the store's signals from other processes.
//
// Each running handler has a goroutine of its own. Settle and renew also run
// for RunOnce and Drain, without fetch.
//
// # Slots
//
// There are Concurrency slots. A handler takes at most its own limit, and a
// handler that already runs something leaves one free slot for each handler
// that runs nothing (but never more than half of all slots). So one hung
// handler can't keep a quiet one from starting.
//
// Deliveries are claimed ahead for handlers that work them off quickly. When
// there are more busy handlers than slots, each such claim also brings something
// for those that run nothing, so that their turn comes. What waits here for a
// third of a lease goes back.
//
// # Stopping
//
// Fetch stops first. Running handlers get the grace period; then their contexts
// are cancelled; what still runs a moment later is released without a charge
// and named in the error. Bookkeeping never uses a handler's context.
package dispatch
