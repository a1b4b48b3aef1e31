package memtransport

// faults are the ways in which the broker misbehaves at the moment.
type faults struct {
	down, frozen bool
	held         map[string]bool
	refused      map[string]error
	maxBytes     int
	loseConfirms int
	loseAcks     int
}

// Disconnect breaks every connection once. The transports reconnect at once;
// what their consumers had not acknowledged is delivered again.
func (b *Broker) Disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disconnect()
}

// Down breaks every connection and lets nobody connect until Up.
func (b *Broker) Down() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults.down = true
	b.disconnect()
}

// Up ends Down. The transports reconnect at once.
func (b *Broker) Up() { b.fault(func(f *faults) { f.down = false }) }

// Freeze keeps the connections and answers nothing until Thaw: Connect,
// Subscribe and Send wait for their contexts, and no message is delivered.
// Acknowledgements still count.
func (b *Broker) Freeze() { b.fault(func(f *faults) { f.frozen = true }) }

// Thaw ends Freeze. What waited goes on.
func (b *Broker) Thaw() { b.fault(func(f *faults) { f.frozen = false }) }

// Hold lets every Send to the destination wait until Release.
func (b *Broker) Hold(destination string) {
	b.fault(func(f *faults) { f.held[destination] = true })
}

// Release ends Hold. What waited goes on.
func (b *Broker) Release(destination string) {
	b.fault(func(f *faults) { delete(f.held, destination) })
}

// Refuse lets every Send to the destination fail with the class, such as
// [transport.ErrRefused], [transport.ErrNacked] or [transport.ErrUnroutable],
// until Accept.
func (b *Broker) Refuse(destination string, class error) {
	b.fault(func(f *faults) { f.refused[destination] = class })
}

// Accept ends Refuse.
func (b *Broker) Accept(destination string) {
	b.fault(func(f *faults) { delete(f.refused, destination) })
}

// SetMaxBytes lets a Send fail with [transport.ErrTooLarge] when its payload
// and headers have more bytes than this together. 0, the default, is no limit.
func (b *Broker) SetMaxBytes(n int) { b.fault(func(f *faults) { f.maxBytes = n }) }

// LoseConfirms loses the next n confirmations: the messages are taken, but
// their Sends fail with [transport.ErrUnavailable].
func (b *Broker) LoseConfirms(n int) { b.fault(func(f *faults) { f.loseConfirms = n }) }

// LoseAcks loses the next n acknowledgements of consumers, so their messages
// are delivered again.
func (b *Broker) LoseAcks(n int) { b.fault(func(f *faults) { f.loseAcks = n }) }

// Heal ends every fault.
func (b *Broker) Heal() {
	b.fault(func(f *faults) { *f = faults{held: map[string]bool{}, refused: map[string]error{}} })
}

func (b *Broker) fault(change func(*faults)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.faults)
	b.broadcast()
}
