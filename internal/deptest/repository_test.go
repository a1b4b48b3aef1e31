package deptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repository is the checkout that holds this test.
type repository struct {
	dir string
	// modules are the directories with a go.mod, relative to dir and sorted.
	modules []string
}

// openRepository finds the checkout and reads all of its Go and module files. What the go command reads for us is
// invisible to the test cache; reading the files here makes a change in any module rerun the test.
func openRepository(t *testing.T) repository {
	t.Helper()
	repo := repository{dir: filepath.Join("..", "..")}
	files := os.DirFS(repo.dir)
	err := fs.WalkDir(files, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		switch {
		case entry.IsDir() && file != "." && (strings.HasPrefix(name, ".") || name == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || name != "go.mod" && name != "go.work" && path.Ext(name) != ".go":
			return nil
		case name == "go.mod":
			repo.modules = append(repo.modules, path.Dir(file))
		}
		// A file may vanish between the listing and the reading while somebody edits.
		if _, err := fs.ReadFile(files, file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(repo.modules)
	return repo
}

// pkg is what `go list -json` says about a package.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	// Deps is everything that the package depends on outside of its tests.
	Deps []string
}

// packages returns the packages of the module. A package that does not load fails the test.
func (r repository) packages(t *testing.T, module string) []pkg {
	t.Helper()
	out := r.goCommand(t, module, "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./...")
	var packages []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read the output of go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// goMod is what `go mod edit -json` says about a go.mod.
type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []struct{ Old, New struct{ Path string } }
}

// replaces tells if the go.mod sends the module to a directory of this repository.
func (m goMod) replaces(path string) bool {
	return slices.ContainsFunc(m.Replace, func(replaced struct{ Old, New struct{ Path string } }) bool {
		return replaced.Old.Path == path && strings.HasPrefix(replaced.New.Path, "../")
	})
}

func (r repository) goMod(t *testing.T, module string) goMod {
	t.Helper()
	var mod goMod
	if err := json.Unmarshal(r.goCommand(t, module, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatalf("read the go.mod of %s: %v", module, err)
	}
	return mod
}

// workspace returns the directories that go.work uses, sorted.
func (r repository) workspace(t *testing.T) []string {
	t.Helper()
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(r.goCommand(t, ".", "work", "edit", "-json", "go.work"), &work); err != nil {
		t.Fatalf("read go.work: %v", err)
	}
	var dirs []string
	for _, use := range work.Use {
		dirs = append(dirs, filepath.ToSlash(filepath.Clean(use.DiskPath)))
	}
	slices.Sort(dirs)
	return dirs
}

// goCommand runs the go command in the module's directory, outside of the workspace: each module must stand alone.
func (r repository) goCommand(t *testing.T, module string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join(r.dir, filepath.FromSlash(module))
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), module, err, stderr.String())
	}
	return out
}
