package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/relaybus-go/relaybus"
)

// say prints a line of the story.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// narrator tells what the bus does.
type narrator struct{}

func (narrator) OnSucceeded(a relaybus.Attempt) {
	note := ""
	if a.Number > 1 {
		note = fmt.Sprintf("  (attempt %d)", a.Number)
	}
	say("   ✓  %-18s %-17s %s%s", a.Handler, a.Event.Type, a.Event.Key, note)
}

func (narrator) OnRetried(a relaybus.Attempt) {
	say("   ↻  %-18s %-17s %s  failed: %v; again in %v", a.Handler, a.Event.Type, a.Event.Key, a.Err, a.Delay)
}

func (narrator) OnBuried(a relaybus.Attempt) {
	say("   ✗  %-18s %-17s %s  is dead: %v", a.Handler, a.Event.Type, a.Event.Key, a.Err)
}

// story is what happens. Each part can be the first one: the file may hold an
// earlier run that was killed.
func (s *shop) story(ctx context.Context) error {
	earlier, err := s.count(ctx, `SELECT count(*) FROM orders`)
	if err != nil {
		return err
	}
	if earlier > 0 {
		stats, err := s.bus.Statistics(ctx)
		if err != nil {
			return err
		}
		say("The file holds %d orders of an earlier run, and %d deliveries that are not finished.", earlier, stats.Pending+stats.Running)
		say("What a killed process was at work on is taken over once its lease of 2 s has run out.")
	} else if err := s.placeOrders(ctx); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.repair(ctx); err != nil {
		return err
	}
	return s.report(ctx)
}

func (s *shop) placeOrders(ctx context.Context) error {
	say("1. Four orders are placed. Each commits together with its event.")
	for _, o := range []Order{
		{ID: "o-1", Email: "ada@example.com", Address: "1 Byron Row", Cents: 1_250},
		{ID: "o-2", Email: "grace@example.com", Address: "2 Harbour Street", Cents: 4_999},
		{ID: "o-3", Email: "alan@example.com", Address: "3 Park Lane", Cents: 800},
		{ID: "o-4", Email: "edsger@example.com", Address: "", Cents: 3_100},
	} {
		if err := s.place(ctx, o); err != nil {
			return err
		}
	}
	say("   A fifth one is rolled back, and its event with it.")
	err := s.place(ctx, Order{ID: "o-5", Email: "eve@example.com", Cents: 9_999_999})
	if !errors.Is(err, errCardDeclined) {
		return fmt.Errorf("order o-5 should have been declined: %w", err)
	}
	say("2. Handlers do the rest: o-3's mail fails once, o-4 has no address.")
	return nil
}

// settle waits until every delivery is done or dead.
func (s *shop) settle(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		stats, err := s.bus.Statistics(ctx)
		if err != nil {
			return err
		}
		if stats.Pending+stats.Running == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// repair is what an operator does about a dead letter.
func (s *shop) repair(ctx context.Context) error {
	page, err := s.bus.ListDeliveries(ctx, relaybus.Filter{Status: relaybus.StatusDead}, relaybus.Page{})
	if err != nil || len(page.Deliveries) == 0 {
		return err
	}
	say("3. An operator looks at the dead letters, adds the address, and requeues.")
	for _, d := range page.Deliveries {
		say("   dead: handler %s, order %s, after %d attempt(s): %s", d.ID.Handler, d.Event.Key, d.Attempts, d.Error)
		if _, err := s.db.DB().ExecContext(ctx, `UPDATE orders SET address = '4 Shortest Path' WHERE id = ?`, d.Event.Key); err != nil {
			return err
		}
		if err := s.bus.Requeue(ctx, d.ID); err != nil {
			return err
		}
	}
	return s.settle(ctx)
}

// report prints the final table and checks it.
func (s *shop) report(ctx context.Context) error {
	rows, err := s.db.Reader().QueryContext(ctx, `
		SELECT id, state, (SELECT count(*) FROM ledger WHERE order_id = orders.id),
			(SELECT count(*) FROM mails WHERE order_id = orders.id),
			(SELECT group_concat(substr(step, 7, length(step) - 9), ' → ') FROM
				(SELECT step FROM timeline WHERE order_id = orders.id ORDER BY rowid))
		FROM orders ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	say("4. In the end:")
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, err = fmt.Fprintln(table, "   ORDER\tSTATE\tLEDGER ENTRIES\tMAILS\tTIMELINE")
	if err != nil {
		return err
	}
	right := true
	for rows.Next() {
		var id, state string
		var entries, mails int
		var steps sql.NullString
		if err := rows.Scan(&id, &state, &entries, &mails, &steps); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(table, "   %s\t%s\t%d\t%d\t%s\n", id, state, entries, mails, steps.String); err != nil {
			return err
		}
		right = right && state == "shipped" && entries == 1 && mails == 1 && steps.String == "placed → paid → shipped"
	}
	if err := errors.Join(rows.Err(), table.Flush()); err != nil {
		return err
	}
	if !right {
		return errors.New("something was lost or done twice")
	}
	say("Nothing was lost, nothing was done twice, and each order's events came in order.")
	return nil
}

func (s *shop) count(ctx context.Context, query string) (n int, err error) {
	err = s.db.Reader().QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
