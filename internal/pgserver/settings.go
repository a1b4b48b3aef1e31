package pgserver

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// writeSettings appends the defaults and the given settings to the configuration file of a server.
func writeSettings(file string, given map[string]string) error {
	settings := map[string]string{"fsync": "on", "max_connections": "200"}
	maps.Copy(settings, given)
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	quote := strings.NewReplacer(`\`, `\\`, `'`, `''`)
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		value := settings[key]
		if !name.MatchString(key) || strings.ContainsAny(value, "\n\r\x00") {
			return fmt.Errorf("the setting %.60q has a name or a value that no line of postgresql.conf can hold", key)
		}
		fmt.Fprintf(&lines, "%s = '%s'\n", key, quote.Replace(value))
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open postgresql.conf: %w", err)
	}
	if _, err := out.WriteString(lines.String()); err != nil {
		_ = out.Close()
		return fmt.Errorf("write postgresql.conf: %w", err)
	}
	return out.Close()
}

// plainEnvironment drops what changes a program's language or, like PGOPTIONS, its behaviour.
func plainEnvironment(environment []string) []string {
	dropped := regexp.MustCompile(`^(PG|LC_|LANG|RELAYBUS_)`)
	return append(slices.DeleteFunc(slices.Clone(environment), dropped.MatchString), "LC_ALL=C")
}

// tail returns the end of a log, on lines of its own, for an error about a program that does not start.
func tail(file string) string {
	const limit = 2000
	log, err := os.ReadFile(file)
	log = bytes.TrimSpace(log)
	if err != nil || len(log) == 0 {
		return ""
	}
	return "; the end of its log:\n" + string(log[max(0, len(log)-limit):])
}
