package relaybustest_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
)

// exampleT takes the place of the *testing.T of a test. It prints failures.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func newT() *exampleT { return &exampleT{} }

func (*exampleT) Helper()                           {}
func (*exampleT) Context() context.Context          { return context.Background() }
func (*exampleT) Output() io.Writer                 { return io.Discard }
func (t *exampleT) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }
func (*exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleT) Fatal(args ...any)               { t.Fatalf("%s", fmt.Sprint(args...)) }

// end runs the cleanups, as the end of a test does.
func (t *exampleT) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}
