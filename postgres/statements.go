package postgres

// statements has the SQL of the store with the names put in. Values are always
// bound.
type statements struct {
	metaSQL
	handlerSQL
	appendSQL
	ownerSQL
	claimSQL
	settleSQL
	operateSQL
	listSQL
	purgeSQL
}

func newStatements(c Config) *statements {
	return &statements{
		metaSQL:    newMetaSQL(c),
		handlerSQL: newHandlerSQL(c),
		appendSQL:  newAppendSQL(c),
		ownerSQL:   newOwnerSQL(c),
		claimSQL:   newClaimSQL(c),
		settleSQL:  newSettleSQL(c),
		operateSQL: newOperateSQL(c),
		listSQL:    newListSQL(c),
		purgeSQL:   newPurgeSQL(c),
	}
}
