// Package deptest checks who imports whom: the rules of docs/design.md as a test over every module of the workspace.
// depguard says the same file by file and in editors. This test also sees what reaches a module through others, the
// contents of go.mod and go.work, and packages for which nobody has written a rule yet.
package deptest

import (
	"slices"
	"testing"
)

// TestImports checks every package of every module. Each module is listed outside of the workspace, as its users see
// it.
func TestImports(t *testing.T) {
	t.Parallel()
	repo := openRepository(t)

	for _, m := range workspace() {
		t.Run(m.dir, func(t *testing.T) {
			t.Parallel()
			packages := repo.packages(t, m.dir)
			if len(packages) == 0 {
				t.Fatalf("module %s has no package", m.path())
			}
			for _, violation := range m.violations(packages) {
				t.Error(violation)
			}
		})
	}
}

// TestWorkspace compares go.work and the go.mod files that exist with the modules that have rules.
func TestWorkspace(t *testing.T) {
	t.Parallel()
	repo := openRepository(t)

	var want []string
	for _, m := range workspace() {
		want = append(want, m.dir)
	}
	slices.Sort(want)
	if !slices.Equal(repo.modules, want) {
		t.Errorf("there is a go.mod in %q, the rules name %q", repo.modules, want)
	}
	if got := repo.workspace(t); !slices.Equal(got, want) {
		t.Errorf("go.work uses %q, the rules name %q", got, want)
	}
}

// TestRequirements checks every go.mod.
func TestRequirements(t *testing.T) {
	t.Parallel()
	repo := openRepository(t)
	goVersion := repo.goMod(t, ".").Go

	for _, m := range workspace() {
		t.Run(m.dir, func(t *testing.T) {
			t.Parallel()
			mod := repo.goMod(t, m.dir)
			if mod.Module.Path != m.path() {
				t.Errorf("the module in %s is %s, want %s", m.dir, mod.Module.Path, m.path())
			}
			if !m.unreleased && mod.Go != goVersion {
				t.Errorf("go %s, want %s as in the root module", mod.Go, goVersion)
			}
			for _, required := range mod.Require {
				_, isOwn := below(root, required.Path)
				switch {
				case m.dir == ".":
					t.Errorf("requires %s, but the root module needs nothing but the standard library", required.Path)
				case isOwn && !mod.replaces(required.Path):
					t.Errorf("requires %s without a replace to its directory", required.Path)
				case !required.Indirect && !m.unreleased && !slices.Contains(m.requires, required.Path):
					t.Errorf("requires %s, allowed are %q", required.Path, m.requires)
				}
			}
			for _, replaced := range mod.Replace {
				if _, isOwn := below(root, replaced.Old.Path); !isOwn {
					t.Errorf("replaces %s, but a replace does not reach the module's users", replaced.Old.Path)
				}
			}
		})
	}
}

// TestViolations plants imports that break a rule, and some that look like it.
func TestViolations(t *testing.T) {
	t.Parallel()
	const (
		imports    = "imports"
		inTest     = "imports in a test"
		inXTest    = "imports in an external test"
		transitive = "depends on"
	)

	for _, tt := range []struct {
		module, pkg, how, imported string
		want                       string
	}{
		{module: ".", pkg: "", how: imports, imported: root + "/store"},
		{module: ".", pkg: "", how: imports, imported: root + "/internal/dispatch"},
		{module: ".", pkg: "", how: imports, imported: root + "/store/memstore", want: root + " imports " + root + "/store/memstore"},
		{module: ".", pkg: "", how: inXTest, imported: root},
		{module: ".", pkg: "", how: inTest, imported: root + "/store/memstore"},
		{module: ".", pkg: "", how: imports, imported: "testing", want: root + " imports testing, which is for tests"},
		{module: ".", pkg: "", how: imports, imported: "testing/synctest", want: root + " imports testing/synctest, which is for tests"},
		{module: ".", pkg: "", how: imports, imported: "net/http/httptest", want: root + " imports net/http/httptest, which is for tests"},
		{module: ".", pkg: "", how: inTest, imported: "testing"},
		{module: ".", pkg: "", how: transitive, imported: "github.com/jackc/pgx/v5", want: root + " depends on github.com/jackc/pgx/v5"},
		{module: ".", pkg: "", how: transitive, imported: "modernc.org/sqlite", want: root + " depends on modernc.org/sqlite"},
		{module: ".", pkg: "/internal/a", how: imports, imported: root + "/internal/atest", want: root + "/internal/a imports " + root + "/internal/atest, which is for tests"},
		{module: ".", pkg: "", how: imports, imported: root + "/internal/pgserver", want: root + " imports " + root + "/internal/pgserver, which is for tests"},
		{module: ".", pkg: "", how: inXTest, imported: root + "/internal/pgserver"},
		{module: ".", pkg: "/internal/a", how: imports, imported: root, want: root + "/internal/a imports " + root},
		{module: ".", pkg: "/store", how: imports, imported: root + "/store/lane"},
		{module: ".", pkg: "/store", how: imports, imported: root, want: root + "/store imports " + root},
		{module: ".", pkg: "/store/lane", how: imports, imported: root + "/store", want: root + "/store/lane imports " + root + "/store"},
		{module: ".", pkg: "/store/storetest", how: imports, imported: "testing"},
		{module: ".", pkg: "/store/storetest", how: imports, imported: root + "/store/memstore", want: root + "/store/storetest imports " + root + "/store/memstore"},
		{module: ".", pkg: "/transport", how: imports, imported: root + "/store", want: root + "/transport imports " + root + "/store"},
		{module: ".", pkg: "/unheard", how: imports, imported: "fmt", want: root + "/unheard has no rule"},
		{module: "sqlite", pkg: "", how: imports, imported: root + "/store"},
		{module: "sqlite", pkg: "", how: imports, imported: root + "/sqlite/internal/schema"},
		{module: "sqlite", pkg: "", how: transitive, imported: "modernc.org/sqlite/lib"},
		{module: "sqlite", pkg: "", how: imports, imported: root, want: root + "/sqlite imports " + root},
		{module: "sqlite", pkg: "", how: inXTest, imported: root},
		{module: "sqlite", pkg: "", how: inXTest, imported: root + "/store/storetest"},
		{module: "sqlite", pkg: "", how: inXTest, imported: root + "/internal/backoff", want: root + "/sqlite imports " + root + "/internal/backoff in a test"},
		{module: "sqlite", pkg: "", how: transitive, imported: "github.com/mattn/go-sqlite3", want: root + "/sqlite depends on github.com/mattn/go-sqlite3"},
		{module: ".", pkg: "", how: imports, imported: root + "/internal/fleettest", want: root + " imports " + root + "/internal/fleettest, which is for tests"},
		{module: ".", pkg: "/internal/fleettest", how: imports, imported: root},
		{module: ".", pkg: "/internal/fleettest", how: imports, imported: root + "/store/memstore", want: root + "/internal/fleettest imports " + root + "/store/memstore"},
		{module: "sqlite", pkg: "", how: inXTest, imported: root + "/internal/fleettest"},
		{module: "sqlite", pkg: "", how: imports, imported: root + "/internal/fleettest", want: root + "/sqlite imports " + root + "/internal/fleettest"},
		{module: "postgres", pkg: "", how: inXTest, imported: root + "/internal/fleettest"},
		{module: "sqlite", pkg: "", how: inXTest, imported: root + "/internal/pgserver", want: root + "/sqlite imports " + root + "/internal/pgserver in a test"},
		{module: "postgres", pkg: "", how: imports, imported: root + "/store"},
		{module: "postgres", pkg: "", how: imports, imported: root + "/postgres/internal/schema"},
		{module: "postgres", pkg: "", how: transitive, imported: "github.com/jackc/pgx/v5/pgxpool"},
		{module: "postgres", pkg: "", how: transitive, imported: "github.com/jackc/pgx/v4", want: root + "/postgres depends on github.com/jackc/pgx/v4"},
		{module: "postgres", pkg: "", how: imports, imported: root, want: root + "/postgres imports " + root},
		{module: "postgres", pkg: "", how: inXTest, imported: root},
		{module: "postgres", pkg: "", how: inXTest, imported: root + "/internal/pgserver"},
		{module: "postgres", pkg: "", how: imports, imported: root + "/internal/pgserver", want: root + "/postgres imports " + root + "/internal/pgserver"},
		{module: "postgres", pkg: "", how: inXTest, imported: root + "/internal/backoff", want: root + "/postgres imports " + root + "/internal/backoff in a test"},
		{module: "postgres/ormtest", pkg: "", how: inXTest, imported: root + "/postgres"},
		{module: "postgres/ormtest", pkg: "", how: inXTest, imported: root + "/internal/pgserver"},
		{module: "postgres/ormtest", pkg: "", how: imports, imported: root + "/postgres", want: root + "/postgres/ormtest imports " + root + "/postgres"},
		{module: "postgres/ormtest", pkg: "", how: inXTest, imported: root + "/sqlite", want: root + "/postgres/ormtest imports " + root + "/sqlite in a test"},
		{module: "examples", pkg: "/orders", how: imports, imported: root + "/sqlite"},
		{module: "examples", pkg: "/orders", how: imports, imported: root + "/internal/backoff", want: root + "/examples/orders imports " + root + "/internal/backoff"},
		{module: "bench", pkg: "", how: imports, imported: "testing"},
		{module: "bench", pkg: "", how: transitive, imported: "github.com/riverqueue/river"},
		{module: "bench", pkg: "", how: imports, imported: root + "/internal/pgserver"},
		{module: "bench", pkg: "", how: imports, imported: root + "/internal/backoff", want: root + "/bench imports " + root + "/internal/backoff"},
	} {
		t.Run(tt.module+tt.pkg+" "+tt.how+" "+tt.imported, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(workspace(), func(m module) bool { return m.dir == tt.module })
			m := workspace()[i]
			p := pkg{ImportPath: m.path() + tt.pkg}
			switch list := []string{tt.imported}; tt.how {
			case imports:
				p.Imports = list
			case inTest:
				p.TestImports = list
			case inXTest:
				p.XTestImports = list
			case transitive:
				p.Deps = list
			}
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			if got := m.violations([]pkg{p}); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
