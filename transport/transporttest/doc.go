// Package transporttest checks that a transport does what package transport
// says. Every transport of this project passes it, and so should one of yours:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		transporttest.Run(t, transporttest.Backend{Open: open})
//	}
//
// Each case is a subtest with a broker, or an isolated part of a broker, of its
// own. A case that needs a fault which the backend can't inject has to be named
// in [Backend.Skip]; what the transport itself does not promise it declares in
// [transport.Features], and the cases ask less.
package transporttest
