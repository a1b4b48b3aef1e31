package postgres

import "context"

func (s *Store) channel() string { return "relaybus" }

func (s *Store) Wake(ctx context.Context, signal func()) error { <-ctx.Done(); return nil }
