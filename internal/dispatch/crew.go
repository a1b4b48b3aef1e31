package dispatch

// crew are goroutines that have run a handler and wait for another one: their stacks
// have grown to what handlers need, which costs as much as a small handler. It is
// guarded by the engine's mutex.
type crew struct {
	// waiting counts those that nobody has given a job yet.
	waiting, most int
	jobs          chan *job
}

func newCrew(most int) crew { return crew{most: most, jobs: make(chan *job, most)} }

// give has the job run by one that waits, or by a new one.
func (c *crew) give(j *job, run func(*job)) {
	if c.waiting == 0 {
		go run(j)
		return
	}
	c.waiting--
	c.jobs <- j // It has room for all that ever wait.
}

// rest waits for a job. It returns nil when there is to be none.
func (e *Engine) rest() *job {
	e.mu.Lock()
	s := e.services
	if s == nil || e.crew.waiting+len(e.crew.jobs) >= e.crew.most {
		e.mu.Unlock()
		return nil
	}
	e.crew.waiting++
	s.resting.Add(1)
	e.mu.Unlock()
	defer s.resting.Done()
	select {
	case j := <-e.crew.jobs:
		return j
	case <-s.handlers.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// As many wait as there are jobs to take, and others: this is one of them.
	if e.crew.waiting > 0 {
		e.crew.waiting--
		return nil
	}
	return <-e.crew.jobs
}
