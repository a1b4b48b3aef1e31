package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/store"
)

// testCase is one case of the suite.
type testCase struct {
	// name begins with the numbers of the requirements and faults it is about.
	name string
	// needs returns why the case does not apply, or "". nil always applies.
	needs func(p profile) string
	run   func(b *bed)
}

// profile is what decides which cases apply.
type profile struct {
	features store.Features
	db       Database
}

// Run runs the whole suite. Its subtests run in parallel.
func Run(t *testing.T, backend Backend) {
	t.Helper()
	cases := allCases(backend)
	probe := backend.New(t)
	s := probe.Open(t, Options{History: true})
	p := profile{features: s.Features(), db: probe}

	var excluded []string
	for _, c := range cases {
		if c.needs == nil {
			continue
		}
		if reason := c.needs(p); reason != "" {
			excluded = append(excluded, c.name+": "+reason)
		}
	}
	t.Run("Features", func(t *testing.T) {
		t.Parallel()
		for _, line := range excluded {
			t.Log("does not apply: " + line)
		}
		checkFeatures(t, backend, p)
	})
	for _, c := range cases {
		if c.needs != nil && c.needs(p) != "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newBed(t, backend))
		})
	}
}

func allCases(backend Backend) []testCase {
	cases := slices.Concat(
		setupCases(), transactionCases(), appendCases(), payloadCases(), orderCases(), keyCases(), laneCases(),
		costCases(), fenceCases(), tokenCases(), leaseCases(), takeoverCases(), cancelCases(), clockCases(), completionCases(),
		purgeCases(), listCases(), hostileCases(), operatorCases(), catalogCases(), aliasCases(), errorCases(),
		loadCases(), processCases(backend),
	)
	for i := range cases {
		cases[i].name = strings.ReplaceAll(cases[i].name, " ", "_")
	}
	return cases
}

// all joins conditions.
func all(needs ...func(profile) string) func(profile) string {
	return func(p profile) string {
		for _, need := range needs {
			if reason := need(p); reason != "" {
				return reason
			}
		}
		return ""
	}
}

func needsHistory(p profile) string {
	if p.features.NoHistory {
		return "the store keeps no completed deliveries"
	}
	return ""
}

func needsBegin(p profile) string {
	if p.db.Begin == nil {
		return "the backend has no transactions that a caller opens"
	}
	return ""
}

func needsEffects(p profile) string {
	if p.db.Effect == nil || p.db.Effects == nil {
		return "the backend has no rows of the caller"
	}
	return ""
}

func needsProcesses(p profile) string {
	if p.features.SingleProcess {
		return "no other process can open the database"
	}
	return ""
}

func needsRowsRead(p profile) string {
	if p.db.Counters.RowsRead == nil {
		return "the backend doesn't count the rows that it reads"
	}
	return ""
}

func needsTransactions(p profile) string {
	if p.db.Counters.Transactions == nil {
		return "the backend doesn't count transactions"
	}
	return ""
}

func needsParallelTransactions(p profile) string {
	if p.features.SerialTransactions {
		return "one write transaction at a time"
	}
	return ""
}

func needsDurability(p profile) string {
	if p.features.Volatile {
		return "nothing survives the process"
	}
	return ""
}

// checkFeatures holds a store to what it declares, as far as no case does.
func checkFeatures(t *testing.T, backend Backend, p profile) {
	t.Helper()
	f := p.features
	if f.SingleProcess != (p.db.Command == nil) {
		t.Errorf("SingleProcess is %v, and the backend offers worker processes: %v", f.SingleProcess, p.db.Command != nil)
	}
	if f.Volatile && !f.SingleProcess {
		t.Error("a volatile store can't be shared by processes")
	}
	if f.MaxPayloadBytes < 0 || f.TransactionBudget < 0 {
		t.Errorf("negative limits: %+v", f)
	}
	if (p.db.Effect == nil) != (p.db.Effects == nil) {
		t.Error("Effect and Effects belong together")
	}
	without := backend.New(t).Open(t, Options{})
	if !without.Features().NoHistory {
		t.Error("a store that was opened without history must declare NoHistory")
	}
	with := p.db.Open(t, Options{History: true}).Features()
	if with != f {
		t.Errorf("two instances declare different features: %+v and %+v", with, f)
	}
	one := p.db.Open(t, Options{History: true})
	if kind := one.Kind(); kind == "" || strings.ToLower(kind) != kind || strings.ContainsAny(kind, " \t\n") {
		t.Errorf("Kind is %q, not a short lower-case name", kind)
	}
}
