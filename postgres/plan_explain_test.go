package postgres_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// plan is a node of what EXPLAIN (FORMAT JSON) says.
type plan struct {
	Node     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Recheck  float64 `json:"Rows Removed by Index Recheck"`
	Hit      int64   `json:"Shared Hit Blocks"`
	Read     int64   `json:"Shared Read Blocks"`
	Plans    []plan  `json:"Plans"`
}

// each calls visit for the node and all below it.
func (p *plan) each(visit func(p *plan)) {
	visit(p)
	for i := range p.Plans {
		p.Plans[i].each(visit)
	}
}

// examined is how many rows of tables the plan has looked at.
func (p *plan) examined() (n int) {
	p.each(func(p *plan) {
		if p.Relation != "" && strings.Contains(p.Node, "Scan") {
			n += int((p.Rows + p.Filtered + p.Recheck) * p.Loops)
		}
	})
	return n
}

// String is an outline of it.
func (p *plan) String() string {
	var b strings.Builder
	var write func(p *plan, depth int)
	write = func(p *plan, depth int) {
		fmt.Fprintf(&b, "%s%s %s %s rows=%v filtered=%v loops=%v blocks=%d\n", strings.Repeat("  ", depth), p.Node, p.Relation, p.Index,
			p.Rows, p.Filtered+p.Recheck, p.Loops, p.Hit+p.Read)
		for i := range p.Plans {
			write(&p.Plans[i], depth+1)
		}
	}
	write(p, 0)
	return b.String()
}

// explain runs a statement that was prepared by the driver, and returns what the server did.
func explain(t *testing.T, tx pgx.Tx, name, text string, args []any) *plan {
	t.Helper()
	name = "hot " + name
	if _, err := tx.Conn().Prepare(t.Context(), name, text); err != nil {
		t.Fatalf("%s: prepare: %v", name, err)
	}
	literals := make([]string, len(args))
	for i, arg := range args {
		literals[i] = literal(t, arg)
	}
	execute := "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE " + pgx.Identifier{name}.Sanitize()
	if len(args) > 0 {
		execute += "(" + strings.Join(literals, ", ") + ")"
	}
	var out []byte
	if err := tx.QueryRow(t.Context(), execute, pgx.QueryExecModeSimpleProtocol).Scan(&out); err != nil {
		t.Fatalf("%s: explain: %v", name, err)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal(out, &plans); err != nil || len(plans) != 1 {
		t.Fatalf("%s: read the plan: %v", name, err)
	}
	return &plans[0].Plan
}

// literal is a value in SQL whose type the parameter has.
func literal(t *testing.T, value any) string {
	t.Helper()
	switch v := value.(type) {
	case nil:
		return "NULL"
	case bool, int, int32, int64:
		return fmt.Sprint(v)
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	case []int64:
		return "'{" + strings.Join(texts(v), ",") + "}'"
	case []bool:
		return "'{" + strings.Join(texts(v), ",") + "}'"
	case []string:
		quoted := make([]string, len(v))
		for i, text := range v {
			quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `''`).Replace(text) + `"`
		}
		return "'{" + strings.Join(quoted, ",") + "}'"
	default:
		t.Fatalf("no literal for a %T", value)
		return ""
	}
}

func texts[T any](list []T) []string {
	result := make([]string, len(list))
	for i, v := range list {
		result[i] = fmt.Sprint(v)
	}
	return result
}

// large are the tables that grow with the number of events.
func large() []string {
	return []string{"relaybus_events", "relaybus_deliveries", "relaybus_history", "relaybus_completions", "relaybus_accounts"}
}

// checkPlan holds a plan to what is intended.
func checkPlan(t *testing.T, name string, p *plan, want hot) {
	t.Helper()
	var problems []string
	used := make(map[string]bool)
	p.each(func(p *plan) {
		if p.Index != "" {
			used[strings.TrimPrefix(p.Index, "relaybus_")] = true
		}
		if p.Node == "Seq Scan" && slices.Contains(large(), p.Relation) {
			problems = append(problems, "it reads all of "+p.Relation)
		}
	})
	for index := range used {
		of, _, _ := strings.Cut(index, "_")
		if slices.Contains(large(), "relaybus_"+of) && !slices.Contains(want.indexes, index) {
			problems = append(problems, "it uses "+index)
		}
	}
	for _, index := range want.indexes {
		if !used[index] {
			problems = append(problems, "it does not use "+index)
		}
	}
	if n := p.examined(); n > 10*want.limit {
		problems = append(problems, fmt.Sprintf("it examines %d rows for %d", n, want.limit))
	}
	// A descent of an index is few blocks; more than that for a row is a walk through what does not belong to it.
	if n := p.Hit + p.Read; n > 60*int64(want.limit)+200 {
		problems = append(problems, fmt.Sprintf("it reads %d blocks for %d rows", n, want.limit))
	}
	if len(problems) > 0 {
		t.Errorf("%s: %s\n%s", name, strings.Join(problems, ", "), p)
	}
}
