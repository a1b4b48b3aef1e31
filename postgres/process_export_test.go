package postgres

// Probe calls f at every crash point that the store passes.
func Probe(s *Store, f func(point string)) { s.crash = f }
