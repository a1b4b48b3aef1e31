package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// series is a measurement over time.
type series struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// tableState is what PostgreSQL's statistics say of a table.
type tableState struct {
	Run   string `json:"run" db:"-"`
	Table string `json:"table" db:"table"`
	// Live and Dead are estimated numbers of rows.
	Live int64 `json:"live" db:"live"`
	Dead int64 `json:"dead" db:"dead"`
	// Inserted, Updated (HOT among them in the same page) and Deleted are since the
	// beginning.
	Inserted int64 `json:"inserted" db:"inserted"`
	Updated  int64 `json:"updated" db:"updated"`
	HOT      int64 `json:"hot" db:"hot"`
	Deleted  int64 `json:"deleted" db:"deleted"`
	// Heap and Indexes are sizes in bytes.
	Heap    int64 `json:"heap_bytes" db:"heap"`
	Indexes int64 `json:"index_bytes" db:"indexes"`
	Vacuums int64 `json:"autovacuums" db:"vacuums"`
}

// tableStates returns the tables that were written to often, and not the caller's
// own.
func tableStates(ctx context.Context, address string) (states []tableState, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	// A session adds its figures when it ends, which is a while after its connection
	// was closed. One that is in a transaction is that of the pinned snapshot.
	for ending := 1; ending > 0; {
		err := conn.QueryRow(ctx, `SELECT count(pid) FROM pg_stat_activity, pg_sleep(0.01) WHERE datname = current_database()
			AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle in transaction'`).Scan(&ending)
		if err != nil {
			return nil, err
		}
	}
	rows, err := conn.Query(ctx, `SELECT relname AS table, n_live_tup AS live, n_dead_tup AS dead, n_tup_ins AS inserted,
			n_tup_upd AS updated, n_tup_hot_upd AS hot, n_tup_del AS deleted, pg_table_size(relid) AS heap,
			pg_indexes_size(relid) AS indexes, autovacuum_count AS vacuums
		FROM pg_stat_user_tables WHERE n_tup_ins + n_tup_upd >= 100 AND relname <> 'orders' ORDER BY n_tup_ins DESC, relname`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[tableState])
}

func (r *report) writeSeries(text *strings.Builder) {
	for _, s := range r.Series {
		fmt.Fprintf(text, "\n%s:", s.Name)
		for _, v := range s.Values {
			fmt.Fprintf(text, " %s", thousands(int64(v+0.5)))
		}
		text.WriteString("\n")
	}
}

func (r *report) writeTableStates(text *strings.Builder) {
	if len(r.Tables) == 0 {
		return
	}
	text.WriteString("\n### tables at the end (rows by PostgreSQL's statistics, MB)\n\n" +
		"| run | table | live | dead | inserted | updated | HOT | deleted | heap | indexes | autovacuums |\n" +
		"| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n")
	const mb = 1e6
	for _, s := range r.Tables {
		fmt.Fprintf(text, "| %s | %s | %s | %s | %s | %s | %s | %s | %.1f | %.1f | %d |\n", s.Run, s.Table,
			thousands(s.Live), thousands(s.Dead), thousands(s.Inserted), thousands(s.Updated), thousands(s.HOT),
			thousands(s.Deleted), float64(s.Heap)/mb, float64(s.Indexes)/mb, s.Vacuums)
	}
}
