// Package relaybustest is for testing code that publishes and handles events:
// a bus in memory, a clock that the test moves, and assertions.
//
//	func TestOrder(t *testing.T) {
//		bus := relaybustest.New(t, relaybus.Config{}, shop.Handlers()...)
//		if err := shop.PlaceOrder(t.Context(), bus.Bus, "o-1"); err != nil {
//			t.Fatal(err)
//		}
//		bus.AssertPublished(t, shop.OrderPlaced, 1)
//		bus.Drain(t.Context()) // handlers run here, and nowhere else
//		bus.AssertHandled(t, "send-confirmation", 1)
//		bus.Advance(time.Hour) // retries and delayed events on the way run at their times
//		bus.AssertNoDead(t)
//	}
//
// # Time
//
// A bus from [New] runs on a [Clock] that stands still until the test moves it.
// [Bus.Advance] lets time pass for a bus, [Clock.Advance] only moves the clock,
// for tests in which a handler is at work meanwhile. A handler's timeout, for
// instance:
//
//	drained := make(chan struct{})
//	go func() {
//		defer close(drained)
//		bus.Drain(t.Context())
//	}()
//	<-started // closed by the handler, whose timeout is set by then
//	bus.Clock.Advance(timeout)
//	<-drained
//
// # In a bubble of testing/synctest
//
// Everything works inside a bubble, on the [Clock] as well as on
// [relaybus.SystemClock], which a bubble makes a fake clock of its own. Create
// the bus inside, with the bubble's T. A started bus settles down with
// synctest.Wait.
//
// # One handler alone
//
// [HandleOnce] runs one handler, without a bus.
package relaybustest
