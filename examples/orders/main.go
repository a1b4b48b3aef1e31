// Command orders is a small order service on a SQLite file: it places, charges
// and ships orders, keeps a ledger, and sends mails through a server that fails
// now and then. Read shop.go for the service, handlers.go for what follows an
// order, story.go for what happens here.
//
//	go run ./examples/orders                        # the whole story
//	go run ./examples/orders -db shop.db -crash     # dies in the middle …
//	go run ./examples/orders -db shop.db            # … and goes on
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/relaybus-go/relaybus"
	"github.com/relaybus-go/relaybus/sqlite"
)

func main() {
	file := flag.String("db", "", "keep the database in this `file` (default: a temporary one)")
	crash := flag.Bool("crash", false, "kill the process in the middle of the ledger's work on the second order")
	verbose := flag.Bool("v", false, "show the bus's own log")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *file, *crash, *verbose)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string, crash, verbose bool) (err error) {
	if file == "" {
		dir, tempErr := os.MkdirTemp("", "orders-")
		if tempErr != nil {
			return tempErr
		}
		file = filepath.Join(dir, "shop.db")
		if crash {
			say("Afterwards run this to go on:  go run ./examples/orders -db %s", file)
		} else {
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		}
	}
	db, err := sqlite.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	log := slog.DiscardHandler
	if verbose {
		log = slog.NewTextHandler(os.Stderr, nil)
	}
	bus, err := relaybus.New(db, relaybus.Config{
		Source: "orders",
		// A killed process is noticed when its lease has run out.
		LeaseDuration: 2 * time.Second,
		// A transactional handler must end before that.
		TransactionTimeout: time.Second,
		Retry:              relaybus.RetryPolicy{Base: 300 * time.Millisecond, NoJitter: true},
		Logger:             slog.New(log),
		Hooks:              []relaybus.Hook{narrator{}},
	})
	if err != nil {
		return err
	}
	s := &shop{db: db, bus: bus}
	if crash {
		s.crashAt = "o-2"
	}
	if err := s.createTables(ctx); err != nil {
		return err
	}
	if err := bus.Subscribe(s.handlers()...); err != nil {
		return err
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	err = s.story(ctx)
	// Stop waits for handlers at work, also after an interrupt.
	return errors.Join(err, bus.Stop(context.WithoutCancel(ctx)))
}
