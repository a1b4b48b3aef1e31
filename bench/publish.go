package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const publishName = "publish"

// publishVariant is one line of the publish table.
type publishVariant struct {
	goroutines, handlers, batch int
	keyed                       bool
}

func (v publishVariant) String() string {
	what := "unkeyed"
	if v.keyed {
		what = "unique keys"
	}
	if v.batch > 1 {
		what = fmt.Sprintf("%d unkeyed", v.batch)
	}
	return fmt.Sprintf("%s, %s, %s", what, plural(v.handlers, "handler"), plural(v.goroutines, "goroutine"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (b *bench) publishVariants() []publishVariant {
	if b.fewVariants {
		return []publishVariant{{1, 1, 1, false}, {8, 3, 1, true}, {1, 3, b.batch, false}}
	}
	var list []publishVariant
	for _, goroutines := range []int{1, 8} {
		for _, handlers := range []int{1, 3} {
			for _, keyed := range []bool{false, true} {
				list = append(list, publishVariant{goroutines, handlers, 1, keyed})
			}
		}
	}
	for _, goroutines := range []int{1, 8} {
		for _, handlers := range []int{1, 3} {
			list = append(list, publishVariant{goroutines, handlers, b.batch, false})
		}
	}
	return list
}

// publishCase measures transactions that write one row of the caller's and
// publish.
func publishCase(ctx context.Context, b *bench) error {
	for _, v := range b.publishVariants() {
		if !strings.Contains(v.String(), b.variants) {
			continue
		}
		if err := b.publishVariant(ctx, v); err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
	}
	return nil
}

// publisher is a contender in one variant.
type publisher struct {
	contender
	queue

	closeAll func() error
	next     atomic.Int64
	// transactions that were committed.
	transactions atomic.Int64
	// took, used and events are those of the round.
	took   time.Duration
	used   *timing
	events int64
}

// publishSlices is how many turns a contender has in a round, so that a moment
// in which the machine is busy meets everybody.
const publishSlices = 5

func (b *bench) publishVariant(ctx context.Context, v publishVariant) (err error) {
	b.logf("publish: %s", v)
	var list []*publisher
	defer func() {
		for _, p := range list {
			err = errors.Join(err, p.closeAll())
		}
	}()
	for _, c := range b.platform.publishers {
		if !b.takesPart(c) {
			continue
		}
		q, closeAll, err := b.open(ctx, c, setting{handlers: v.handlers, keyed: v.keyed, publishOnly: true})
		if err != nil {
			return err
		}
		list = append(list, &publisher{contender: c, queue: q, closeAll: closeAll, used: newTiming(b.clocks())})
	}
	for round := range b.rounds + 1 {
		// Round 0 warms up, with one slice each.
		for slice := 0; slice == 0 || (round > 0 && slice < publishSlices); slice++ {
			for _, p := range list {
				if err := p.run(ctx, v, b.publishTime/publishSlices); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
		}
		for _, p := range list {
			p.endRound(b.report, v, round > 0)
		}
	}
	for _, p := range list {
		if err := p.check(ctx, v); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		b.report.checked(publishName, v.String(), p.name)
		p.used.checked(b.report, publishName, v.String(), p.name)
	}
	return nil
}

// check counts what was published.
func (p *publisher) check(ctx context.Context, v publishVariant) error {
	t, err := p.count(ctx)
	if err != nil {
		return err
	}
	committed := p.transactions.Load()
	if want := committed * int64(v.batch*v.handlers); t.orders != committed || t.waiting != want {
		return fmt.Errorf("%d transactions left %d orders and %d deliveries, not %d", committed, t.orders, t.waiting, want)
	}
	return nil
}

// endRound reports a round unless it was to warm up.
func (p *publisher) endRound(r *report, v publishVariant, counts bool) {
	if !counts {
		p.used = newTiming(p.used.clocks)
	} else {
		m := measurement{Case: publishName, Variant: v.String(), System: p.name, Unit: "events/s"}
		r.add(m, float64(p.events)/p.took.Seconds())
		m.Unit = "µs/event"
		p.used.report(r, m, p.events)
	}
	p.took, p.events = 0, 0
}

// run publishes from all goroutines until the time is over.
func (p *publisher) run(ctx context.Context, v publishVariant, duration time.Duration) error {
	var group sync.WaitGroup
	errs := make([]error, v.goroutines)
	before := p.transactions.Load()
	began := time.Now()
	p.used.start()
	for i := range v.goroutines {
		group.Go(func() {
			for time.Since(began) < duration && errs[i] == nil {
				first := p.next.Add(int64(v.batch)) - int64(v.batch) + 1
				if errs[i] = p.publish(ctx, first, v.batch); errs[i] == nil {
					p.transactions.Add(1)
				}
			}
		})
	}
	group.Wait()
	p.took += time.Since(began)
	p.used.stop()
	p.events += (p.transactions.Load() - before) * int64(v.batch)
	return errors.Join(errs...)
}
