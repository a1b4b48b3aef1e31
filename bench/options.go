package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options say what is measured, and how long.
type options struct {
	platform platform

	cases  []string
	only   []string
	dir    string
	json   bool
	raw    string
	rounds int

	publishTime time.Duration
	batch       int
	fewVariants bool
	variants    string

	drain       int
	drainWindow time.Duration
	workers     int

	rate        int
	latencyTime time.Duration

	backlogs []int
	blocked  int
	claims   int

	pinnedTime   time.Duration
	pinnedRates  []int
	pinnedWindow time.Duration

	cpuProfile string
}

func defaultOptions() options {
	return options{
		rounds:      3,
		publishTime: 500 * time.Millisecond,
		batch:       100,
		drain:       50_000,
		drainWindow: 6 * time.Second,
		workers:     100,
		rate:        200,
		latencyTime: 4 * time.Second,
		blocked:     10_000,
		claims:      40,

		pinnedTime:   5 * time.Minute,
		pinnedRates:  []int{2_000, 20_000},
		pinnedWindow: 5 * time.Second,
	}
}

// quick turns options into those of a smoke test: every case runs, and its
// figures mean nothing.
func (o *options) quick() {
	o.rounds = 1
	o.publishTime = 20 * time.Millisecond
	o.drain = 300
	o.drainWindow = 0
	o.fewVariants = true
	o.latencyTime = 200 * time.Millisecond
	o.backlogs = []int{500, 2_000}
	o.blocked = 500
	o.claims = 3
	o.pinnedTime = 800 * time.Millisecond
	o.pinnedRates = []int{400, 2_000}
	o.pinnedWindow = 200 * time.Millisecond
}

func parseOptions(args []string, usage io.Writer) (options, error) {
	o := defaultOptions()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(usage)
	// The sizes of -quick are defaults, too: flags that are given win.
	if slices.Contains(args, "-quick") || slices.Contains(args, "--quick") {
		o.quick()
	}
	flags.Bool("quick", false, "smoke test: small sizes and one round")
	db := flags.String("db", platforms()[0].name, "`database` to measure on: sqlite or postgres")
	names := flags.String("cases", "", "comma-separated `names` of the cases to run: publish, drain, latency, claim, and on "+
		"PostgreSQL pinned (default all but pinned)")
	var contenders []string
	for _, p := range platforms() {
		contenders = append(contenders, p.name+" has "+strings.Join(p.contenders(o), ", "))
	}
	only := flags.String("only", "", "comma-separated `names` of the contenders to run: "+strings.Join(contenders, "; ")+
		" (default all, in the case pinned relaybus alone)")
	flags.StringVar(&o.dir, "dir", "", "`directory` for the files of SQLite (default the system's for temporary files; PostgreSQL's server is there by TMPDIR)")
	flags.BoolVar(&o.json, "json", false, "print JSON instead of tables")
	flags.StringVar(&o.raw, "raw", "", "also write JSON, with the values of all rounds, to this `file`")
	flags.IntVar(&o.rounds, "rounds", o.rounds, "interleaved `rounds` of each measurement")
	flags.DurationVar(&o.publishTime, "publish-time", o.publishTime, "`time` that one round of publishing takes")
	flags.StringVar(&o.variants, "variants", "", "publish only in variants whose name contains this `text`")
	flags.IntVar(&o.batch, "batch", o.batch, "`events` in a transaction that publishes many")
	flags.IntVar(&o.drain, "drain", o.drain, "`deliveries` to drain")
	flags.DurationVar(&o.drainWindow, "drain-window", o.drainWindow,
		"stop a peer's drain after this `time` and take its rate until then; 0 drains to the end")
	flags.IntVar(&o.workers, "workers", o.workers, "handlers that run at once in the drain")
	flags.IntVar(&o.rate, "rate", o.rate, "events a second of the latency case")
	flags.DurationVar(&o.latencyTime, "latency-time", o.latencyTime, "`time` that one round of the latency case takes")
	backlogs := flags.String("backlogs", joinInts(o.backlogs), "comma-separated `sizes` of waiting deliveries of the claim case; "+
		"the first is the base (default 1000,100000,1000000, and on PostgreSQL 1000,1000000,5000000)")
	flags.IntVar(&o.blocked, "blocked", o.blocked, "`deliveries` behind one blocked key in the claim case")
	flags.IntVar(&o.claims, "claims", o.claims, "fresh owners that each claim in the claim case")
	flags.DurationVar(&o.pinnedTime, "pinned-time", o.pinnedTime, "`time` of each run of the case pinned")
	rates := flags.String("pinned-rates", joinInts(o.pinnedRates), "comma-separated `events` a second of the case pinned")
	flags.DurationVar(&o.pinnedWindow, "pinned-window", o.pinnedWindow, "`time` over which the case pinned takes each rate")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile to this `file`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.cases, o.only = split(*names), split(*only)
	i := slices.IndexFunc(platforms(), func(p platform) bool { return p.name == *db })
	if i < 0 {
		return o, fmt.Errorf("flag -db: there is no database %q", *db)
	}
	o.platform = platforms()[i]
	var err error
	if o.backlogs, err = parseInts(*backlogs); err != nil {
		return o, fmt.Errorf("flag -backlogs: %w", err)
	}
	if len(o.backlogs) == 0 {
		o.backlogs = o.platform.backlogs
	}
	if o.pinnedRates, err = parseInts(*rates); err != nil {
		return o, fmt.Errorf("flag -pinned-rates: %w", err)
	}
	return o, o.validate()
}

func (o options) validate() error {
	var errs []error
	for _, name := range o.cases {
		if !slices.ContainsFunc(o.platform.cases, func(c benchCase) bool { return c.name == name }) {
			errs = append(errs, fmt.Errorf("flag -cases: there is no case %q on %s", name, o.platform.name))
		}
	}
	for _, name := range o.only {
		if !slices.Contains(o.platform.contenders(o), name) {
			errs = append(errs, fmt.Errorf("flag -only: %q does not run on %s", name, o.platform.name))
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"publish-time", o.publishTime}, {"latency-time", o.latencyTime}, {"pinned-time", o.pinnedTime}, {"pinned-window", o.pinnedWindow}} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("flag -%s: %s is not positive", d.flag, d.value))
		}
	}
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"rounds", o.rounds},
		{"batch", o.batch},
		{"drain", o.drain},
		{"workers", o.workers},
		{"rate", o.rate},
		{"blocked", o.blocked},
		{"claims", o.claims},
		{"backlogs", slices.Min(o.backlogs)},
		{"pinned-rates", slices.Min(append(o.pinnedRates, mostPinnedRate))},
	} {
		if n.value < 1 {
			errs = append(errs, fmt.Errorf("flag -%s: %d is not positive", n.flag, n.value))
		}
	}
	return errors.Join(errs...)
}

func (o options) chosen(c benchCase) bool {
	return len(o.cases) == 0 && !c.asked || slices.Contains(o.cases, c.name)
}

// takesPart reports whether a contender runs.
func (o options) takesPart(c contender) bool {
	return len(o.only) == 0 || slices.Contains(o.only, c.name)
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func parseInts(text string) (list []int, err error) {
	for _, part := range split(text) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

func joinInts(list []int) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ",")
}
