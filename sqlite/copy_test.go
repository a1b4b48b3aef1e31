package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/relaybus-go/relaybus/sqlite"
	"github.com/relaybus-go/relaybus/store"
)

// A copy of the file is another database, although it has the same id; a link
// to the file is the same.
func TestCopyIsForeign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, copied, link := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db"), filepath.Join(dir, "c.db")
	first, err := sqlite.Open(path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if err := errors.Join(first.Setup(t.Context()), first.Close()); err != nil {
		t.Fatalf("set up: %v", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if err := errors.Join(os.WriteFile(copied, content, 0o600), os.Symlink(path, link)); err != nil {
		t.Fatalf("copy: %v", err)
	}
	a := newBedAt(t, path, sqlite.Config{})
	for other, want := range map[string]error{copied: store.ErrForeignTx, link: nil} {
		b := newBedAt(t, other, sqlite.Config{})
		err := b.s.Transact(t.Context(), store.TxOptions{}, func(ctx context.Context, tx store.Tx) error {
			return a.s.CheckTx(ctx, tx)
		})
		if !errors.Is(err, want) {
			t.Errorf("%s, a transaction of the store: %v", filepath.Base(other), err)
		}
		tx := beginOn(t, b.s.DB())
		if err := a.s.CheckTx(t.Context(), sqlite.Join(tx)); !errors.Is(err, want) {
			t.Errorf("%s, a joined transaction: %v", filepath.Base(other), err)
		}
		if err := tx.Rollback(); err != nil {
			t.Errorf("roll back: %v", err)
		}
	}
}
