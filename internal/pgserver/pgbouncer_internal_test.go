package pgserver

import (
	"strings"
	"testing"
)

func TestCloseTellsThatPgBouncerHadEnded(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := StartPgBouncer(t.Context(), s.URL("postgres"), PgBouncerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.process.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.process.ended
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "ended by itself") || !strings.Contains(err.Error(), "killed") {
		t.Errorf("close: %v; want it to say that pgbouncer had ended, and how", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}
