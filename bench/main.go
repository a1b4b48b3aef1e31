package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run parses the arguments, measures, and writes the report to out and what is
// going on to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parseOptions(args, progress)
	if err != nil {
		return err
	}
	stopProfile, err := startProfile(o.cpuProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfile()) }()
	r, failed := measure(ctx, o, progress)
	if r == nil {
		return failed
	}
	// What was measured is worth having also when a case has failed.
	if o.raw != "" {
		if err := r.saveJSON(o.raw); err != nil {
			failed = errors.Join(failed, fmt.Errorf("write raw report: %w", err))
		}
	}
	if o.json {
		return errors.Join(failed, r.writeJSON(out))
	}
	return errors.Join(failed, r.writeTables(out))
}

// measure runs the chosen cases. There is a report also with the error of a case.
func measure(ctx context.Context, o options, progress io.Writer) (r *report, err error) {
	began := time.Now()
	where, err := o.platform.open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, where.close(context.WithoutCancel(ctx))) }()
	r = newReport(o)
	if r.Database, err = where.about(ctx); err != nil {
		return nil, err
	}
	b := &bench{options: o, site: where, report: r, progress: progress}
	for _, c := range o.platform.cases {
		if !o.chosen(c) {
			continue
		}
		if failed := c.run(ctx, b); failed != nil {
			failed = fmt.Errorf("case %s: %w", c.name, failed)
			b.logf("%v", failed)
			r.Failures = append(r.Failures, failed.Error())
			err = errors.Join(err, failed)
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.judge(o.platform.goals)
	r.Took = time.Since(began).Round(time.Second).String()
	return r, err
}

// bench is one run.
type bench struct {
	options

	site     site
	report   *report
	progress io.Writer
}

func (b *bench) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, format+"\n", args...)
}

func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("start profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
