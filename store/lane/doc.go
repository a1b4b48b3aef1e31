// Package lane has the rules of the lane protocol, as pure functions and small
// structures without a clock, a lock or a database. Every store uses them, and
// the protocol check drives them through all interleavings.
//
// # The protocol
//
// Deliveries are divided into 256 lanes by a hash of the ordering key, or of
// the event id without one ([Of]). Workers lease lanes, not deliveries: while a
// worker holds a lane, only it claims the deliveries there, so that claiming
// needs no row locks and a delivery on the normal path is written twice, by its
// insert and its delete.
//
// A claim
//
//  1. takes over from owners whose lease has expired, and charges one attempt
//     to everything that they ran;
//  2. reads due deliveries from the lanes that it holds, and, when these don't
//     fill it, takes free lanes in rounds of 4, 8, 16, … ([Rounds]), the lane
//     with the oldest due delivery first;
//  3. picks ([Picker]): never two of a key, never behind an unfinished
//     predecessor, never beyond a handler's limit, with a share for each
//     handler ([Shares]);
//  4. records what it picked, under its own live lease;
//  5. hands back the lanes that brought nothing.
//
// A claimed delivery is fenced by a [Token]: the lane, its epoch (which grows
// whenever the lane changes hands) and the delivery's claim generation (which
// grows whenever a claim of it ends without finishing it).
//
// A delivery moves like this; running is derived, never stored:
//
//	           claim                    complete
//	pending ───────────► (running) ───────────────► deleted, or history
//	 ▲  ▲                 │  │  │
//	 │  └─ reschedule,    │  │  └── bury ─► dead ─┐ (may hold its key)
//	 │     release, ◄─────┘  │                    │
//	 │     takeover          │                    │
//	 └───────────────────── requeue ◄─────────────┘
//
// Due deliveries that wait behind an unfinished predecessor of their key would
// be read by every claim. When a claim meets [ParkAt] or more of one key, or
// can't finish reading because of such deliveries, it parks them: they leave
// the index that claims read, and come back one by one as their key moves on.
package lane
