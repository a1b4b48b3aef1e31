package sqlite

import "sync/atomic"

// meter counts what the connections of a store did.
type meter struct {
	writes, reads, statements, rows atomic.Int64
}

func (m *meter) begun(write bool) {
	if write {
		m.writes.Add(1)
	} else {
		m.reads.Add(1)
	}
}

func (m *meter) statement() { m.statements.Add(1) }
