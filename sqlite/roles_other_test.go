//go:build !unix

package sqlite_test

import "errors"

func play(string, string) error { return errors.New("this system has no such processes") }
