package sqlite

// statements has the SQL of the store with the prefix put in. Values are always
// bound. Hot statements name their index, so that neither statistics nor a new
// version of SQLite changes their plan.
type statements struct {
	metaSQL
	appendSQL
	handlerSQL
	claimSQL
	ownerSQL
	settleSQL
	operateSQL
	listSQL
	purgeSQL

	// texts has all that are kept prepared.
	texts map[string]struct{}
}

func newStatements(prefix string) *statements {
	s := &statements{texts: make(map[string]struct{})}
	q := func(text string) string {
		text = named(prefix, text)
		s.texts[text] = struct{}{}
		return text
	}
	s.metaSQL = newMetaSQL(q)
	s.appendSQL = newAppendSQL(q)
	s.handlerSQL = newHandlerSQL(q)
	s.claimSQL = newClaimSQL(q)
	s.ownerSQL = newOwnerSQL(q)
	s.settleSQL = newSettleSQL(q)
	s.operateSQL = newOperateSQL(q)
	s.listSQL = newListSQL(q)
	s.purgeSQL = newPurgeSQL(q)
	return s
}

type metaSQL struct{ hasMeta, getMeta, putMeta, dataVersion string }

func newMetaSQL(q func(string) string) metaSQL {
	return metaSQL{
		hasMeta: q(`SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1`),
		getMeta: q(`SELECT value FROM {p}meta WHERE key = ?1`),
		putMeta: q(`INSERT INTO {p}meta (key, value) VALUES (?1, ?2)
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`),
		// It changes when another connection has committed.
		dataVersion: q(`PRAGMA data_version`),
	}
}
