package sqlite

// Primary result codes of SQLite (https://www.sqlite.org/rescode.html).
const (
	codeError     = 1
	codePerm      = 3
	codeBusy      = 5
	codeLocked    = 6
	codeNoMem     = 7
	codeReadOnly  = 8
	codeInterrupt = 9
	codeIOErr     = 10
	codeCorrupt   = 11
	codeFull      = 13
	codeCantOpen  = 14
	codeProtocol  = 15
	codeSchema    = 17
	codeTooBig    = 18
	codeConstrain = 19
	codeMismatch  = 20
	codeAuth      = 23
	codeNotADB    = 26
)

// codeIOErrWrite is the extended code of a write that failed.
const codeIOErrWrite = codeIOErr | 3<<8

// codeBusySnapshot is the extended code of a transaction that has read before
// somebody else wrote, and now wants to write.
const codeBusySnapshot = codeBusy | 2<<8

// isUncertain reports whether a COMMIT that failed like this may have reached
// the disk. When a write failed, the record that commits is not complete; after
// any other error, such as one of an fsync, it may be.
func isUncertain(err error) bool {
	code, ok := resultCode(err)
	return ok && code&0xff == codeIOErr && code != codeIOErrWrite
}

// primaryCode returns the primary result code of an error of the driver.
func primaryCode(err error) (code int, ok bool) {
	code, ok = resultCode(err)
	return code & 0xff, ok
}

func isBusy(err error) bool {
	code, ok := primaryCode(err)
	return ok && (code == codeBusy || code == codeLocked)
}
