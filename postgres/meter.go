package postgres

import "sync/atomic"

// meter counts what the store does, for tests.
type meter struct {
	transactions, trips, rows atomic.Int64
}

func (m *meter) begun()     { m.transactions.Add(1) }
func (m *meter) trip()      { m.trips.Add(1) }
func (m *meter) read(n int) { m.rows.Add(int64(n)) }
