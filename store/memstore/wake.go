package memstore

import "context"

// Wake calls signal after each change that may have made a delivery due or a
// lane free, those of this instance included; see [store.Waker]. Changes that
// come close together are one signal. It never returns an error.
func (s *Store) Wake(ctx context.Context, signal func()) error {
	changed := make(chan struct{}, 1)
	s.db.mu.Lock()
	s.db.wakers[changed] = struct{}{}
	s.db.mu.Unlock()
	defer func() {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		delete(s.db.wakers, changed)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			signal()
		}
	}
}
