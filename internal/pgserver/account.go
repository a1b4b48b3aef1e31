package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// account is the user whom the programs run as; nil is whoever runs the tests.
type account struct{ uid, gid uint32 }

// programAccount returns nil unless we are root, as whom neither PostgreSQL nor pgbouncer runs.
func programAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // No other account is the normal case, and a nil account is valid.
	}
	var missing error
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			missing = errors.Join(missing, err)
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read the user number of %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read the group number of %s: %w", name, err)
		}
		return &account{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("find a user who is not root to run the server as: %w", missing)
}

// give makes the file or directory the account's own.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}
