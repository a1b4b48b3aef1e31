package lane

// An owner has one lease for all that it runs, and a store need not write it at each
// claim. Times and lengths are in one unit, whichever.

// LeaseUntil returns until when an owner's lease is to run when a claim for length
// hands something out at now: as before as long as no more than a twentieth is
// missing, which those who go by the lease have to spare.
func LeaseUntil(lease, now, length int64) int64 {
	if lease-now >= length*19/20 {
		return lease
	}
	return now + length
}

// LeaseAged reports whether an owner's lease is to be renewed although nothing is
// handed out: a third of it has passed.
func LeaseAged(lease, now, length int64) bool { return lease-now < length*2/3 }
