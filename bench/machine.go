package main

import (
	"runtime"
	"runtime/debug"
	"slices"
)

// machine is where the run took place, and what took part.
type machine struct {
	OS       string            `json:"os"`
	Arch     string            `json:"arch"`
	Cores    int               `json:"cores"`
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"`
}

// measuredModules are the modules whose versions matter.
func measuredModules() []string {
	return []string{
		"github.com/ThreeDotsLabs/watermill",
		"github.com/ThreeDotsLabs/watermill-sql/v4",
		"github.com/jackc/pgx/v5",
		"github.com/riverqueue/river",
		"github.com/riverqueue/river/riverdriver/riverpgxv5",
		"github.com/riverqueue/river/riverdriver/riversqlite",
		"maragu.dev/goqite",
		"modernc.org/sqlite",
	}
}

func thisMachine() machine {
	m := machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(),
		Versions: make(map[string]string),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, dep := range info.Deps {
		if slices.Contains(measuredModules(), dep.Path) {
			m.Versions[dep.Path] = dep.Version
		}
	}
	return m
}
