package jsonvalue

import (
	"fmt"
	"strings"
	"testing"
)

// Adding a name costs one comparison per name of the same hash once there is an
// index. With every chain short, the whole of an object is linear.
func TestNamesOfOneHashAreFew(t *testing.T) {
	t.Parallel()
	const count, longest = 100_000, 3
	prefix := strings.Repeat("p", 40)
	for _, format := range []string{`"%d"`, `"` + prefix + `%d"`, `"\u0070%d"`} {
		var text strings.Builder
		for i := range count {
			fmt.Fprintf(&text, format, i)
		}
		l := lexer{data: []byte(text.String())}
		n := names{data: l.data}
		m := n.begin()
		for i := range count {
			token, bad := l.next()
			if bad != 0 || n.add(&m, token) != 0 {
				t.Fatalf("name %d is refused", i)
			}
			if few := i < fewNames; few != (m.heads == nil) {
				t.Fatalf("%d names: indexed %v, want %v", i+1, m.heads != nil, !few)
			}
		}
		total := 0
		for _, head := range m.heads {
			length := 0
			for i := head; i >= 0; i = n.list.at(i).next {
				length++
			}
			if length > longest {
				t.Errorf("%d names of one hash, want at most %d", length, longest)
			}
			total += length
		}
		if total != count {
			t.Errorf("%d names in the index, want %d", total, count)
		}
	}
}
