package deptest

import (
	"slices"
	"strings"
)

// root is the import path of the root module.
const root = "github.com/relaybus-go/relaybus"

// servers starts database servers, for tests and benchmarks: a package of the root's internal ones that the test files
// of other modules may import.
const servers = "internal/pgserver"

// fleets kills processes of the stores' tests: another one that their test files may import.
const fleets = "internal/fleettest"

// module is what a module of the workspace may depend on.
type module struct {
	dir string
	// requires lists the modules that its go.mod may require directly.
	requires []string
	// unreleased modules may require anything and may use test helpers: no user's program contains them.
	unreleased bool
	// packages has a rule for every package by its path below the module: "" is the module's own package, "x/..." is x
	// and everything below. The longest match wins.
	packages map[string]rule
}

// rule is what a package may import of this project, by the path below the root module; production is for its own
// files, tests is what its test files may import beyond that. Imports from elsewhere are the business of go.mod.
type rule struct {
	production []string
	tests      []string
}

// workspace has the rules for every module. A module or a package without a rule fails the test: write its rule first,
// here and for depguard in .golangci.yml.
func workspace() []module {
	contract := []string{"store", "store/lane"}
	public := []string{"", "store/...", "transport/...", "relaybustest"}
	everything := append([]string{"internal/..."}, public...)
	return []module{
		{
			dir: ".",
			packages: map[string]rule{
				"":             {production: []string{"store", "transport", "internal/..."}, tests: everything},
				"internal/...": {production: []string{"store", "store/lane", "transport", "internal/..."}, tests: everything},
				// It runs a whole bus, as the stores' users do.
				fleets: {production: []string{"", "store"}, tests: everything},
				"relaybustest": {
					production: []string{"", "store", "store/memstore", "transport", "transport/memtransport", "internal/..."},
					tests:      everything,
				},

				"store":           {production: []string{"store/lane"}, tests: everything},
				"store/lane":      {tests: everything},
				"store/memstore":  {production: contract, tests: everything},
				"store/storetest": {production: contract, tests: everything},

				"transport":               {tests: everything},
				"transport/memtransport":  {production: []string{"transport"}, tests: everything},
				"transport/transporttest": {production: []string{"transport"}, tests: everything},
			},
		},
		{
			dir:      "sqlite",
			requires: []string{root, "modernc.org/sqlite"},
			packages: map[string]rule{
				// A bus on a real file is what some of its tests are about, so they may take the whole public API.
				"...": {production: append([]string{"sqlite/..."}, contract...), tests: append([]string{fleets}, public...)},
			},
		},
		{
			dir:      "postgres",
			requires: []string{root, "github.com/jackc/pgx/v5"},
			packages: map[string]rule{
				"...": {
					production: append([]string{"postgres/..."}, contract...),
					tests:      append([]string{servers, fleets}, public...),
				},
			},
		},
		{
			// Tests only, with the libraries that services use on PostgreSQL.
			dir:        "postgres/ormtest",
			unreleased: true,
			packages: map[string]rule{
				"...": {tests: append([]string{"postgres", servers}, public...)},
			},
		},
		{
			dir:        "examples",
			requires:   []string{root, root + "/sqlite"},
			unreleased: true,
			packages: map[string]rule{
				"...": {
					production: []string{
						"", "store", "store/memstore", "transport", "transport/memtransport", "sqlite", "examples/...",
					},
					tests: public,
				},
			},
		},
		{
			dir:        "bench",
			unreleased: true,
			packages: map[string]rule{
				"...": {production: append([]string{"sqlite/...", "postgres/...", "bench/...", servers}, public...)},
			},
		},
	}
}

// strangers are the vendors' modules that no released module may reach unless its rule requires them, directly or
// through others: databases, brokers, telemetry.
func strangers() []string {
	return []string{
		"crawshaw.io/sqlite",
		"github.com/confluentinc",
		"github.com/glebarez",
		"github.com/go-sql-driver",
		"github.com/jackc/pgx",
		"github.com/lib/pq",
		"github.com/mattn/go-sqlite3",
		"github.com/ncruces/go-sqlite3",
		"github.com/prometheus",
		"github.com/rabbitmq",
		"github.com/riverqueue",
		"github.com/segmentio/kafka-go",
		"github.com/twmb/franz-go",
		"go.mongodb.org",
		"go.opentelemetry.io",
		"go.uber.org/fx",
		"maragu.dev",
		"modernc.org/sqlite",
		"zombiezen.com/go/sqlite",
	}
}

// path returns the module's path.
func (m module) path() string {
	if m.dir == "." {
		return root
	}
	return root + "/" + m.dir
}

// violations returns what is wrong with the imports of the module's packages, one line each, sorted.
func (m module) violations(packages []pkg) []string {
	var found []string
	report := func(words ...string) { found = append(found, strings.Join(words, " ")) }

	for _, p := range packages {
		r, ok := m.rule(p.ImportPath)
		if !ok {
			report(p.ImportPath, "has no rule")
			continue
		}
		for _, imp := range p.Imports {
			switch own, isOwn := below(root, imp); {
			case isOwn && !matchesAny(own, r.production):
				report(p.ImportPath, "imports", imp)
			case isHelper(imp) && !isHelper(p.ImportPath) && !m.unreleased:
				report(p.ImportPath, "imports", imp+",", "which is for tests")
			}
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			own, isOwn := below(root, imp)
			if isOwn && imp != p.ImportPath && !matchesAny(own, r.production) && !matchesAny(own, r.tests) {
				report(p.ImportPath, "imports", imp, "in a test")
			}
		}
		for _, dep := range p.Deps {
			if m.isStranger(dep) {
				report(p.ImportPath, "depends on", dep)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// rule returns the rule for the package.
func (m module) rule(path string) (rule, bool) {
	name, isOwn := below(m.path(), path)
	if !isOwn {
		return rule{}, false
	}
	longest, found := "", false
	for pattern := range m.packages {
		if matches(name, pattern) && (!found || len(pattern) > len(longest)) {
			longest, found = pattern, true
		}
	}
	return m.packages[longest], found
}

// isStranger tells if the package comes from a vendor whom the module has no business with.
func (m module) isStranger(path string) bool {
	isBelow := func(prefix string) bool { _, ok := below(prefix, path); return ok }
	return !m.unreleased && slices.ContainsFunc(strangers(), isBelow) && !slices.ContainsFunc(m.requires, isBelow)
}

// isHelper tells a package that is for tests: the standard library's, and ours by their names.
func isHelper(path string) bool {
	if own, isOwn := below(root, path); isOwn {
		return own == servers || strings.HasSuffix(own, "test")
	}
	return matches(path, "testing/...") || path == "net/http/httptest"
}

// below returns the part of the import path below the prefix.
func below(prefix, path string) (string, bool) {
	if path == prefix {
		return "", true
	}
	return strings.CutPrefix(path, prefix+"/")
}

// matches tells if the pattern, in the go command's style, covers the path.
func matches(path, pattern string) bool {
	if pattern == "..." {
		return true
	}
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		_, isBelow := below(prefix, path)
		return isBelow
	}
	return path == pattern
}

func matchesAny(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(path, pattern) })
}
