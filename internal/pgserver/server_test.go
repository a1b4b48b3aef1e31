package pgserver_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

func TestServerHasItsSettings(t *testing.T) {
	t.Parallel()
	server := start(t, map[string]string{"max_connections": "17", "search_path": `"it's", "a\b"`})
	if want := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/shop?sslmode=disable", server.Port()); server.URL("shop") != want {
		t.Errorf("the URL is %q, want %q", server.URL("shop"), want)
	}
	client := open(t, server.URL("postgres"))
	for setting, want := range map[string]string{
		"fsync":                   "on",
		"max_connections":         "17",
		"search_path":             `"it's", "a\b"`,
		"server_encoding":         "UTF8",
		"lc_collate":              "C",
		"unix_socket_directories": "",
		"listen_addresses":        "127.0.0.1",
	} {
		sql := "SELECT setting FROM pg_settings WHERE name = '" + setting + "'"
		if setting == "lc_collate" {
			sql = "SELECT datcollate FROM pg_database WHERE datname = current_database()"
		}
		if got := client.query(t, sql); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
}

func TestServerCloses(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	log, err := os.ReadFile(server.LogFile())
	if err != nil || len(log) == 0 {
		t.Errorf("the log has %d bytes, %v", len(log), err)
	}
	client := open(t, server.URL("postgres"))
	for range 2 {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if server.Running() {
		t.Error("the server runs on")
	}
	if _, err := client.try("SELECT 1"); err == nil {
		t.Error("the session lives on")
	}
	if _, err := os.Stat(filepath.Dir(server.LogFile())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if err := server.Restart(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Restart: %v", err)
	}
	if err := server.Stop(t.Context(), pgserver.Smart); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// A server that does not start says why, and leaves nothing.
func TestServerDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"an unknown setting": {"no_such_setting": "1"},
		"a bad name":         {"port = 1 #": "1"},
		"a bad value":        {"search_path": "a\nport = 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := pgserver.Start(t.Context(), pgserver.Options{Settings: settings})
			if err == nil {
				t.Fatal("it starts", server.Close())
			}
			for setting := range settings {
				if !strings.Contains(err.Error(), setting) {
					t.Errorf("the error does not name the setting %s: %v", setting, err)
				}
			}
		})
	}
}

// PostgreSQL's own client gets in, too.
func TestPsql(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	psql := filepath.Join(server.Programs(), "psql")
	if _, err := os.Stat(psql); err != nil {
		t.Skip("there is no psql beside the server's programs:", err)
	}
	out, err := exec.CommandContext(t.Context(), psql, "-XAtc", "SELECT current_user, current_database()", server.URL("postgres")).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "postgres|postgres" {
		t.Errorf("psql says %q, %v", got, err)
	}
}
