package simulation_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relaybus-go/relaybus/store"
	"github.com/relaybus-go/relaybus/store/memstore"
)

// mistaken is the memory store with one mistake.
type mistaken struct {
	*memstore.Store

	appends    func(s *memstore.Store, ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time) ([]store.Appended, error)
	claim      func(s *memstore.Store, ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error)
	settle     func(s *memstore.Store, ctx context.Context, owner string, list []store.Settlement, now time.Time) ([]bool, error)
	extend     func(s *memstore.Store, ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration) ([]bool, error)
	completeTx func(s *memstore.Store, ctx context.Context, tx store.Tx, owner string, l store.Lease, now time.Time) error

	claims atomic.Int64
}

// mostClaims bounds the claims of one process with a mistaken store, which can
// keep it claiming without end: those beyond hang until their context ends.
const mostClaims = 5000

func (m *mistaken) Append(ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time) ([]store.Appended, error) {
	if m.appends != nil {
		return m.appends(m.Store, ctx, tx, events, now)
	}
	return m.Store.Append(ctx, tx, events, now)
}

func (m *mistaken) Claim(ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
	if m.claims.Add(1) > mostClaims {
		<-ctx.Done()
		return store.ClaimResult{}, store.NewError("claim deliveries", store.ErrTimeout, "", context.Cause(ctx))
	}
	if m.claim != nil {
		return m.claim(m.Store, ctx, r)
	}
	return m.Store.Claim(ctx, r)
}

func (m *mistaken) Settle(ctx context.Context, owner string, list []store.Settlement, now time.Time) ([]bool, error) {
	if m.settle != nil {
		return m.settle(m.Store, ctx, owner, list, now)
	}
	return m.Store.Settle(ctx, owner, list, now)
}

func (m *mistaken) Extend(
	ctx context.Context, owner string, leases []store.Lease, now time.Time, lease time.Duration,
) ([]bool, error) {
	if m.extend != nil {
		return m.extend(m.Store, ctx, owner, leases, now, lease)
	}
	return m.Store.Extend(ctx, owner, leases, now, lease)
}

func (m *mistaken) CompleteTx(ctx context.Context, tx store.Tx, owner string, l store.Lease, now time.Time) error {
	if m.completeTx != nil {
		return m.completeTx(m.Store, ctx, tx, owner, l, now)
	}
	return m.Store.CompleteTx(ctx, tx, owner, l, now)
}

// TestMistakes plants one mistake after the other into the store, and wants the
// history to notice it within a few seeds.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		mistake    func(n *atomic.Int64) mistaken
	}{
		{"an append is swallowed", "I1: ", func(n *atomic.Int64) mistaken {
			return mistaken{appends: func(s *memstore.Store, ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time) ([]store.Appended, error) {
				if n.Add(1)%5 == 0 {
					return make([]store.Appended, len(events)), nil
				}
				return s.Append(ctx, tx, events, now)
			}}
		}},
		{"an event gets out before its commit", "I2: ", func(*atomic.Int64) mistaken {
			return mistaken{appends: func(s *memstore.Store, ctx context.Context, _ store.Tx, events []store.NewEvent, now time.Time) ([]store.Appended, error) {
				own := s.Begin()
				appended, err := s.Append(ctx, own, events, now)
				if err != nil {
					return nil, err
				}
				return appended, own.Commit(ctx)
			}}
		}},
		{"a delivery is handed out twice in one claim", "I3: ", func(*atomic.Int64) mistaken {
			return mistaken{claim: func(s *memstore.Store, ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
				result, err := s.Claim(ctx, r)
				if r.Limit > 1 && len(result.Deliveries) == 1 {
					result.Deliveries = append(result.Deliveries, result.Deliveries[0])
				}
				return result, err
			}}
		}},
		{"a delivery is handed out again while it runs", "I5: ", func(*atomic.Int64) mistaken {
			var last store.Claimed
			return mistaken{claim: func(s *memstore.Store, ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
				result, err := s.Claim(ctx, r)
				if err != nil {
					return result, err
				}
				if again := last; again.Event.ID != "" && len(result.Deliveries) == 0 {
					last = store.Claimed{}
					result.Deliveries = append(result.Deliveries, again)
				} else if len(result.Deliveries) > 0 {
					last = result.Deliveries[0]
				}
				return result, nil
			}}
		}},
		{"settling is reported and not done", "I1: ", func(n *atomic.Int64) mistaken {
			return mistaken{settle: func(s *memstore.Store, ctx context.Context, owner string, list []store.Settlement, now time.Time) ([]bool, error) {
				if n.Add(1)%3 > 0 {
					return s.Settle(ctx, owner, list, now)
				}
				ok := make([]bool, len(list))
				for i := range ok {
					ok[i] = true
				}
				return ok, nil
			}}
		}},
		{"success is reported under a lost lease", "I5: ", func(*atomic.Int64) mistaken {
			return mistaken{settle: func(s *memstore.Store, ctx context.Context, owner string, list []store.Settlement, now time.Time) ([]bool, error) {
				ok, err := s.Settle(ctx, owner, list, now)
				for i := range ok {
					ok[i] = true
				}
				return ok, err
			}}
		}},
		{"a completion is done twice", "I5: ", func(*atomic.Int64) mistaken {
			return mistaken{settle: func(s *memstore.Store, ctx context.Context, owner string, list []store.Settlement, now time.Time) ([]bool, error) {
				for _, one := range list {
					if one.Action == store.Reschedule {
						one.Action = store.Complete
						if _, err := s.Settle(ctx, owner, []store.Settlement{one}, now); err != nil {
							return nil, err
						}
					}
				}
				return s.Settle(ctx, owner, list, now)
			}}
		}},
		{"a release is charged", "S8: ", func(*atomic.Int64) mistaken {
			return mistaken{settle: changing(func(one *store.Settlement) {
				if one.Action == store.Release {
					one.Action, one.DueAt = store.Reschedule, time.Unix(0, 0)
				}
			})}
		}},
		{"a retry is not charged", "S8: ", func(*atomic.Int64) mistaken {
			return mistaken{settle: changing(func(one *store.Settlement) {
				if one.Action == store.Reschedule {
					one.Action = store.Release
				}
			})}
		}},
		{"a held key is not held", "I4: ", func(*atomic.Int64) mistaken {
			return mistaken{settle: changing(func(one *store.Settlement) { one.Hold = false })}
		}},
		{"keys are ignored", "I4: ", func(*atomic.Int64) mistaken {
			return mistaken{
				appends: func(s *memstore.Store, ctx context.Context, tx store.Tx, events []store.NewEvent, now time.Time) ([]store.Appended, error) {
					events = append([]store.NewEvent(nil), events...)
					for i := range events {
						if key := events[i].Key; key != "" {
							events[i].Headers = []byte(`{"key":"` + key + `"}`)
							events[i].Key = ""
						}
					}
					return s.Append(ctx, tx, events, now)
				},
				claim: func(s *memstore.Store, ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
					result, err := s.Claim(ctx, r)
					for i := range result.Deliveries {
						e := &result.Deliveries[i].Event
						if rest, ok := strings.CutPrefix(string(e.Headers), `{"key":"`); ok {
							e.Key, e.Headers, e.Sequence = strings.TrimSuffix(rest, `"}`), nil, 1
						}
					}
					return result, err
				},
			}
		}},
		{"leases are not renewed", "I4: ", func(*atomic.Int64) mistaken {
			return mistaken{
				extend: func(_ *memstore.Store, _ context.Context, _ string, leases []store.Lease, _ time.Time, _ time.Duration) ([]bool, error) {
					holds := make([]bool, len(leases))
					for i := range holds {
						holds[i] = true
					}
					return holds, nil
				},
				claim: func(s *memstore.Store, ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
					r.Lease /= 2
					return s.Claim(ctx, r)
				},
			}
		}},
		{"a transactional completion is not part of the transaction", "I3: ", func(*atomic.Int64) mistaken {
			return mistaken{completeTx: func(_ *memstore.Store, _ context.Context, _ store.Tx, _ string, _ store.Lease, _ time.Time) error {
				return nil
			}}
		}},
		{"one handler is forgotten by claims", "I6: ", func(*atomic.Int64) mistaken {
			return mistaken{claim: func(s *memstore.Store, ctx context.Context, r store.ClaimRequest) (store.ClaimResult, error) {
				if len(r.Handlers) > 1 {
					r.Handlers = r.Handlers[:len(r.Handlers)-1]
				}
				for i, h := range r.Handlers {
					if h.ID == "courier" || h.ID == "audit" {
						r.Handlers = append(r.Handlers[:i:i], r.Handlers[i+1:]...)
						break
					}
				}
				return s.Claim(ctx, r)
			}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var others []string
			for seed := uint64(1); seed <= 60; seed++ {
				var n atomic.Int64
				var found []string
				synctest.Test(t, func(*testing.T) {
					found = run(newPlan(seed), func(s *memstore.Store) backend {
						m := tt.mistake(&n)
						m.Store = s
						return &m
					}, nil).history.found()
				})
				for _, violation := range found {
					if strings.HasPrefix(violation, tt.want) {
						return
					}
				}
				others = append(others, found...)
			}
			t.Errorf("nothing that begins with %q was found; found was %q", tt.want, others)
		})
	}
}

// changing returns a Settle that changes each settlement first.
func changing(change func(*store.Settlement)) func(*memstore.Store, context.Context, string, []store.Settlement, time.Time) ([]bool, error) {
	return func(s *memstore.Store, ctx context.Context, owner string, list []store.Settlement, now time.Time) ([]bool, error) {
		list = append([]store.Settlement(nil), list...)
		for i := range list {
			change(&list[i])
		}
		return s.Settle(ctx, owner, list, now)
	}
}
