package postgres_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/relaybus-go/relaybus/postgres"
)

// batch is how many deliveries the statements are about that take several.
const batch = 100

// hot is how a statement is run, and what it must not do more than.
type hot struct {
	args []any
	// limit is how many rows it is about: it may examine ten times as many.
	limit int
	// indexes are all those of large tables that it uses.
	indexes []string
}

// F12 F59 P3: the statements of the hot paths find what they are about by the intended index, in the prepared form of
// the driver, with plans for any values and for the given ones, in the store's own transactions and in those of callers,
// whatever the server knows of the tables. There are 100,000 rows that must not be looked at, and with RELAYBUS_SOAK a
// million.
func TestPlansSoak(t *testing.T) {
	t.Parallel()
	n := 100_000
	if os.Getenv("RELAYBUS_SOAK") != "" {
		n = 1_000_000
	}
	c := newCrammed(t, n)
	for _, statistics := range []string{"none", "fresh"} {
		if statistics == "fresh" {
			c.exec("ANALYZE")
		}
		for _, cache := range []string{"force_generic_plan", "force_custom_plan"} {
			name := statistics + " statistics, " + cache
			locked := fmt.Sprintf("; SET LOCAL relaybus.locked = '{%d}'", c.other)
			c.explainAll(t, name+", own transaction", cache, postgres.Settings+locked, c.own())
			c.explainAll(t, name+", caller's transaction", cache, "SELECT 1", c.inCallers())
		}
	}
	statements := postgres.StatementTexts(c.s)
	known := slices.Concat(slices.Collect(maps.Keys(c.own())), slices.Collect(maps.Keys(c.inCallers())), cold())
	for name := range statements {
		if !slices.Contains(known, name) {
			t.Errorf("nobody has said if %s is hot", name)
		}
	}
}

// explainAll runs each statement in a transaction of its own, which is rolled back.
func (c *crammed) explainAll(t *testing.T, name, cache, settings string, list map[string]hot) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), c.pool.Config().ConnConfig)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer func() {
		if err := conn.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	statements := postgres.StatementTexts(c.s)
	for _, statement := range slices.Sorted(maps.Keys(list)) {
		text := statements[statement]
		if text == "" {
			t.Errorf("there is no statement %s", statement)
			continue
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatalf("begin: %v", err)
		}
		for _, setting := range []string{settings, "SET LOCAL plan_cache_mode = " + cache} {
			if _, err := tx.Exec(t.Context(), setting); err != nil {
				t.Fatalf("%s: %v", setting, err)
			}
		}
		checkPlan(t, statement+", "+name, explain(t, tx, statement, text, list[statement].args), list[statement])
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatalf("roll back: %v", err)
		}
	}
}

// repeat is a list of one value.
func repeat[T any](value T) []T { return slices.Repeat([]T{value}, batch) }

// own are the statements of the store's own transactions: claims, settlements, leases, takeovers, purges, pages of
// listings, and what operators do with single deliveries.
func (c *crammed) own() map[string]hot {
	const key, ready, open = "deliveries_pkey", "deliveries_ready", "deliveries_open"
	refs := []int64{int64(c.handler)}
	taken := []any{c.events, c.handlers, c.gens}
	with := func(args ...any) []any { return append(slices.Clone(taken), args...) }
	// What it takes from other lanes than those that it reads in.
	lanes := c.due[:min(len(c.due), 16)]
	foreign := c.numbers(`SELECT lane FROM relaybus_lanes WHERE owner = $1 AND handler = $2 LIMIT $3`, c.other, c.handler, len(lanes))
	starts, most := slices.Repeat([]int64{0}, len(lanes)), slices.Repeat([]int64{batch + 32}, len(lanes))
	handlers := slices.Repeat(refs, len(lanes))
	if len(foreign) != len(lanes) {
		c.t.Fatalf("the other owner has %d lanes", len(foreign))
	}
	first, page := c.events[0], []any{"", "", "", "", nil, nil, math.MaxInt64, math.MaxInt32, 0, 4, 0, batch}
	buried := slices.Clone(page)
	buried[8], buried[9] = 2, 3
	dead := c.number(`SELECT event FROM relaybus_deliveries WHERE state = 3 LIMIT 1`)
	old := c.numbers(`SELECT unnest(events) FROM relaybus_completions ORDER BY 1 LIMIT 100`)
	return map[string]hot{
		"fits":         {limit: 1},
		"version":      {limit: 1},
		"identify":     {limit: 1},
		"sequence":     {limit: 1},
		"ownLease":     {args: []any{c.owner}, limit: 1},
		"shareOwner":   {args: []any{c.owner}, limit: 1},
		"lockOwner":    {args: []any{c.owner}, limit: 1},
		"lockOwners":   {args: []any{[]int64{c.owner, c.other}}, limit: 2},
		"tryOwners":    {args: []any{[]int64{c.owner, c.other}}, limit: 2},
		"lockExpired":  {args: []any{c.now + 1000, c.owner}, limit: 1},
		"expired":      {args: []any{c.now + 1000, c.owner}, limit: 1},
		"allOwners":    {limit: 2},
		"renewOwner":   {args: []any{c.owner, c.now + 60000}, limit: 1},
		"addOwner":     {args: []any{int64(7), "new", c.now}, limit: 1},
		"special":      {limit: 4},
		"refs":         {args: []any{[]string{"h", "busy"}}, limit: 4},
		"discover":     {args: []any{refs}, limit: 256, indexes: []string{ready}},
		"discoverFrom": {args: []any{handlers, lanes, starts, starts}, limit: 256, indexes: []string{ready}},
		"foreign":      {args: []any{refs, c.owner}, limit: 256},
		"owned":        {args: []any{c.owner, refs}, limit: 256},
		"running":      {args: []any{c.owner, refs}, limit: batch, indexes: []string{key}},
		"take":         {args: []any{c.owner, handlers, foreign}, limit: 256, indexes: []string{key}},
		"read":         {args: []any{c.owner, handlers, lanes, starts, starts, most, c.now, batch + 32, refs}, limit: batch + 32, indexes: []string{ready, open, "events_pkey"}},
		"park":         {args: []any{c.events[1:], c.handlers[1:], repeat(first)[1:], repeat(refs[0])[1:]}, limit: batch, indexes: []string{key}},
		"addClaim":     {args: []any{c.owner, 1000, c.events, c.handlers, c.gens, c.lanes}, limit: 1},
		"dropClaims":   {args: []any{c.owner, []int64{1, 2, 3}}, limit: 3},
		"claimsOf":     {args: []any{c.owner}, limit: 2},
		"claimsOfMany": {args: []any{[]int64{c.owner, c.other}}, limit: 4},
		"dropClaimsOf": {args: []any{[]int64{c.other}}, limit: 2},
		"freeLanes":    {args: []any{[]int64{c.other}}, limit: 256},
		"dropOwners":   {args: []any{[]int64{c.other}}, limit: 1},
		"charge":       {args: with(c.now), limit: batch, indexes: []string{key}},
		"giveBack":     {args: with(c.now), limit: batch, indexes: []string{key}},
		"generations":  {args: taken[:2], limit: batch, indexes: []string{key}},

		"complete":        {args: with(c.now), limit: batch, indexes: []string{key}},
		"completeKeeping": {args: with(c.now), limit: batch, indexes: []string{key}},
		"reschedule":      {args: with(c.now, repeat(c.now), repeat("it failed")), limit: batch, indexes: []string{key}},
		"release":         {args: with(c.now, repeat(int64(math.MinInt64)), repeat(true)), limit: batch, indexes: []string{key}},
		"bury":            {args: with(c.now, repeat(true), repeat("it failed")), limit: batch, indexes: []string{key}},
		"unblock":         {args: []any{repeat(refs[0]), slices.Repeat([]string{"hot", "key-1"}, batch/2)}, limit: batch, indexes: []string{open, key}},
		"lockEvents":      {args: []any{c.events}, limit: batch, indexes: []string{"events_pkey"}},
		"shareMoves":      {args: []any{1, refs}, limit: 1},
		"lockMoves":       {args: []any{1, refs}, limit: 1},

		"findDelivery":    {args: []any{"old-1", "h"}, limit: 1, indexes: []string{"events_id", key}},
		"findDeliveries":  {args: []any{[]string{"old-1", "old-2"}, []string{"h", "h"}}, limit: 4, indexes: []string{"events_id", key}},
		"eventDeliveries": {args: []any{first}, limit: 1, indexes: []string{key}},
		"knownEvent":      {args: []any{"old-1"}, limit: 1, indexes: []string{"events_id"}},
		"holders":         {args: []any{handlers, lanes}, limit: len(lanes)},
		"lockLanes":       {args: []any{handlers, lanes}, limit: 256},
		"requeue":         {args: []any{repeat(dead), repeat(refs[0]), c.now}, limit: batch, indexes: []string{"deliveries_dead"}},
		"buryPending":     {args: []any{first, refs[0], "why", c.now}, limit: 1, indexes: []string{key}},
		"moveDue":         {args: []any{first, refs[0], c.now, c.now}, limit: 1, indexes: []string{key}},
		"skip":            {args: []any{first, refs[0], c.now}, limit: 1, indexes: []string{key}},
		"remove":          {args: []any{c.events, c.handlers, c.now}, limit: batch, indexes: []string{key}},
		"removeKeeping":   {args: []any{c.events, c.handlers, c.now}, limit: batch, indexes: []string{key}},
		"listDead":        {args: append(page[:6:6], 3, c.now+1, batch), limit: batch, indexes: []string{"deliveries_dead", "events_pkey"}},

		"oldHistory":      {args: []any{c.now, batch}, limit: batch, indexes: []string{"history_at", "history_pkey"}},
		"oldCompletions":  {args: []any{c.now, batch}, limit: batch, indexes: []string{"completions_at"}},
		"setCompletions":  {args: []any{1, old}, limit: 1, indexes: []string{"completions_pkey"}},
		"dropCompletions": {args: []any{[]int64{1, 2, 3}}, limit: 3, indexes: []string{"completions_pkey"}},
		"addCompletions":  {args: []any{repeat(c.now), old}, limit: batch},
		"totals":          {args: []any{old}, limit: batch, indexes: []string{"events_pkey", "accounts_pkey"}},
		"setAccounts":     {args: []any{old, repeat(int64(1)), repeat(c.now)}, limit: batch},
		"dropAccounts":    {args: []any{old}, limit: batch, indexes: []string{"accounts_pkey"}},
		"dropEvents":      {args: []any{old}, limit: batch, indexes: []string{"events_pkey"}},
		"oldDead":         {args: []any{c.now + 1, batch}, limit: batch, indexes: []string{"deliveries_died"}},
		"dropDead":        {args: []any{repeat(dead), repeat(refs[0])}, limit: batch, indexes: []string{key}},
		"oldUnheard":      {args: []any{c.now, batch}, limit: batch, indexes: []string{"events_unheard"}},

		"allHandlers":    {limit: 4, indexes: []string{"deliveries_ready", "deliveries_open", "deliveries_died"}},
		"getEvent":       {args: []any{"old-1"}, limit: 1, indexes: []string{"events_id"}},
		"runningAll":     {limit: 2 * batch, indexes: []string{key}},
		"names":          {args: []any{refs}, limit: 4},
		"listDeliveries": {args: page, limit: batch, indexes: []string{key, "events_pkey"}},
		"listBuried":     {args: buried, limit: batch, indexes: []string{"deliveries_dead", "events_pkey"}},
		"listHistory":    {args: page, limit: batch, indexes: []string{"history_pkey", "events_pkey"}},
		"listRunning":    {args: page, limit: 2 * batch, indexes: []string{key, "events_pkey"}},
	}
}

// inCallers are the statements that run in callers' transactions, without the store's own settings.
func (c *crammed) inCallers() map[string]hot {
	const key = "deliveries_pkey"
	refs := repeat(int64(c.handler))
	ids, keys, which := make([]string, batch), make([]string, batch), make([]int64, batch)
	known, fresh := make([]string, batch), make([]string, batch)
	for i := range batch {
		fresh[i] = fmt.Sprint("fresh-", i)
		ids[i], keys[i], which[i] = fmt.Sprint("new-", i), fmt.Sprint("k", i), int64(i+1)
		known[i] = fmt.Sprint("old-", 1+i*7)
	}
	event := []any{
		c.identity, refs[:1], "new", "order.placed.v1", "orders", "k", c.now, nil, nil, "{}", "{}", 1, c.now, c.now,
	}
	return map[string]hot{
		"identify":    {limit: 1},
		"version":     {limit: 1},
		"groups":      {args: []any{[]string{"h", "busy"}}, limit: 4},
		"addOne":      {args: event, limit: 1},
		"addOneKeyed": {args: append(event[:14:14], 1, 2, 3, 4), limit: 1},
		"addMany": {args: []any{
			c.identity, ids, repeat("order.placed.v1"), repeat("orders"), keys, repeat(c.now), repeat(""), repeat(""), repeat("{}"), repeat("{}"),
			repeat(fmt.Sprintf("{%d}", c.handler)),
		}, limit: batch},
		"addFresh":      {args: append([]any{event[0], event[1], "fresh"}, event[3:14]...), limit: 1},
		"addFreshKeyed": {args: append([]any{event[0], event[1], "fresh"}, append(event[3:14:14], 1, 2, 3, 4)...), limit: 1},
		"addManyFresh": {args: []any{
			c.identity, fresh, repeat("order.placed.v1"), repeat("orders"), keys, repeat(c.now), nil, nil, nil, repeat("{}"),
			repeat(fmt.Sprintf("{%d}", c.handler)), repeat(int64(1)), repeat(c.now), c.now,
		}, limit: batch},
		"knownEvents":       {args: []any{known}, limit: batch, indexes: []string{"events_id"}},
		"setHandlers":       {args: []any{c.events, repeat("{1,2}")}, limit: batch, indexes: []string{"events_pkey"}},
		"addDeliveries":     {args: []any{which, repeat(int64(-1)), repeat(int64(1)), repeat(c.now), keys, c.now}, limit: batch},
		"lockKeys":          {args: []any{1, 2, which, which}, limit: batch},
		"lockBuckets":       {args: []any{1}, limit: 256},
		"completeTx":        {args: []any{c.events[:1], c.handlers[:1], c.gens[:1], c.now, c.owner, nil}, limit: 1, indexes: []string{key}},
		"completeTxKeeping": {args: []any{c.events[:1], c.handlers[:1], c.gens[:1], c.now, c.owner, nil}, limit: 1, indexes: []string{key}},
		"shareMoves":        {args: []any{1, refs[:1]}, limit: 1},
		"unblock":           {args: []any{refs[:1], []string{"hot"}}, limit: 1, indexes: []string{"deliveries_open", key}},
	}
}

// cold are the statements that need not be fast, or read everything by what they are for.
func cold() []string {
	return []string{
		// Setup.
		"hasMeta", "addMeta", "bump", "setupLock", "encoding", "hasSchema", "createSchema",
		// Once for each handler.
		"addHandlers", "lockSets", "members", "joinGroup", "addLanes", "recordHandler", "retireHandler", "pauseHandler",
		// Statistics count all rows.
		"countDeliveries", "countHistory", "oldest",
		// A handler that is dropped is walked through.
		"readyOf",
		"notify",
	}
}
