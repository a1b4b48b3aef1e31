package memstore

// hooks let the tests of this package stop, fail and abandon an operation
// between two of its steps, and plant faults that the protocol check must
// find. They are set before the store is used.
type hooks struct {
	// step is called before each step of a claim, and after the database has
	// applied a settlement or a commit but before the instance has noted it.
	// local is the state that the operation carries from step to step. An error
	// fails the operation there.
	step func(name string, local any) error

	// ignoreGeneration drops the claim generation from the fence.
	ignoreGeneration bool
	// raiseHinted raises bounds that were hinted during the reading.
	raiseHinted bool
	// forgetEnded lets a claim take what ended while it was reading.
	forgetEnded bool
	// keepGeneration leaves the claim generation as it is in a takeover.
	keepGeneration bool
	// ignoreLease lets an owner take and record that was taken over from.
	ignoreLease bool
	// ignoreEdits records what an operator changed since it was read.
	ignoreEdits bool
}

func (s *Store) step(name string, local any) error {
	if s.hooks.step == nil {
		return nil
	}
	return s.hooks.step(name, local)
}
