package dispatch_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/internal/dispatch"
	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// clock is the time of the bubble.
type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func (clock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// deafObserver hears nothing.
type deafObserver struct{}

func (deafObserver) Claimed(int, time.Duration, error)                            {}
func (deafObserver) Started(*dispatch.Handler, *store.Claimed)                    {}
func (deafObserver) Finished(*dispatch.Handler, *store.Claimed, dispatch.Outcome) {}
func (deafObserver) LeaseLost(*dispatch.Handler, *store.Claimed)                  {}
func (deafObserver) Settled(int, time.Duration, error)                            {}
func (deafObserver) Extended(int, time.Duration, error)                           {}
func (deafObserver) Unclaimable(*store.Claimed)                                   {}

// lateStore holds the results of claims back while it is asked to.
type lateStore struct {
	*memstore.Store
	late atomic.Pointer[chan struct{}]
}

func (l *lateStore) Claim(ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
	result, err := l.Store.Claim(ctx, r)
	if late := l.late.Load(); late != nil {
		<-*late
	}
	return result, err
}

// After Pause and Shed nothing starts that was claimed ahead, or by a claim that
// had not returned yet.
func TestShed(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late claim %t", late), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				s := &lateStore{Store: memstore.New(memstore.Config{})}
				now := time.Now()
				if err := s.RecordHandlers(ctx, []store.HandlerEntry{{Handler: store.Handler{ID: "h"}, Types: []string{"a"}}}, now); err != nil {
					t.Fatal(err)
				}
				events := make([]store.NewEvent, 500)
				for i := range events {
					events[i] = store.NewEvent{
						Event:    store.Event{ID: fmt.Sprintf("e-%03d", i), Type: "a", Payload: []byte("1"), CreatedAt: now},
						Handlers: []store.Handler{{ID: "h"}}, DueAt: now,
					}
				}
				if err := s.Transact(ctx, store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
					_, err := s.Append(ctx, tx, events, now)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				held := make(chan struct{})
				if late {
					s.late.Store(&held)
				}
				var runs atomic.Int64
				e := dispatch.New(dispatch.Config{
					Store: s, Clock: clock{}, Owner: "w", Concurrency: 2, BatchSize: 20, MostBatch: 20,
					Poll: time.Second, Lease: time.Minute, Grace: time.Second, Observer: deafObserver{},
					Handlers: []*dispatch.Handler{{
						Handler: store.Handler{ID: "h"}, Limit: 2, MaxAttempts: 5,
						Run: func(context.Context, *store.Claimed) error {
							<-time.After(time.Millisecond)
							runs.Add(1)
							return nil
						},
					}},
				})
				e.Start(ctx, nil)
				<-time.After(50*time.Millisecond + 500*time.Microsecond)
				synctest.Wait()
				if !late && runs.Load() == 0 {
					t.Fatal("nothing ran before")
				}
				if err := s.PauseHandler(ctx, "h", true, time.Now()); err != nil {
					t.Fatal(err)
				}
				e.Shed("unknown")
				e.Shed("h")
				before := runs.Load()
				s.late.Store(nil)
				close(held)
				<-time.After(10 * time.Second)
				if n := runs.Load() - before; n > 2 || (late && n > 0) {
					t.Errorf("%d runs ended after it was shed", n)
				}
				if err := s.PauseHandler(ctx, "h", false, time.Now()); err != nil {
					t.Fatal(err)
				}
				e.Wake()
				<-time.After(10 * time.Second)
				if n := runs.Load(); n != int64(len(events)) {
					t.Errorf("%d runs in all, want %d", n, len(events))
				}
				if err := e.Stop(context.WithoutCancel(ctx), time.Second); err != nil {
					t.Errorf("Stop: %v", err)
				}
			})
		})
	}
}
