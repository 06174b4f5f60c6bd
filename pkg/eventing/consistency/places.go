package consistency

const (
	// maxBytes bounds the memory of all waiting readers, however many aggregates their
	// tokens name. It is enough for ten thousand readers of one aggregate each.
	maxBytes = 24 << 20
	// waiterBytes and positionBytes are the memory of a reader and of each position that
	// it waits for, without the aggregate's name, the connection and the goroutine.
	waiterBytes, positionBytes = 512, 1024
)

// add adds a reader, which misses no commit from now on. The reader has no place yet; see
// takePlace. The caller calls remove once.
func (w *Waiters) add(wanted []Position) (*waiter, error) { return w.addWithin(maxBytes, wanted) }

// addEarly is add for a reader that may not have to wait. Such readers get at most half of the
// memory, so that they leave the rest to the readers that wait. When the database is slow, many
// readers are still in their own read, and would take all of the memory.
func (w *Waiters) addEarly(wanted []Position) (*waiter, error) {
	return w.addWithin(maxBytes/2, wanted)
}

func (w *Waiters) addWithin(bytes int, wanted []Position) (*waiter, error) {
	r := &waiter{wanted: wanted, missing: len(wanted), done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	cost := r.cost()
	if len(wanted) > 0 && !isClosed(w.drained) && (w.count >= w.max || w.bytes+cost > bytes) {
		return nil, ErrTooManyWaiters
	}
	w.bytes += cost
	r.bytes = cost
	for _, p := range wanted {
		k := p.Key()
		if w.entries[k] == nil {
			w.entries[k] = &entry{aggregate: p, waiters: map[*waiter]Position{}}
		}
		w.entries[k].waiters[r] = p
	}
	if r.missing == 0 {
		close(r.done)
	}
	return r, nil
}

// takePlace gives r one of the places of waiting readers. If the positions that r wants are reached
// already, r needs no place. In any case takePlace sets r.refused if no place was free: waitOut needs it.
func (w *Waiters) takePlace(r *waiter) (reached bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.refused = w.count >= w.max && !isClosed(w.drained)
	if r.missing > 0 && !r.refused {
		w.count++
		r.counted = true
	}
	return r.missing == 0
}

// remove ends r's wait.
func (w *Waiters) remove(r *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free(r)
	for _, p := range r.wanted {
		w.forget(r, p.Key())
	}
}

// free expects the lock. It gives back the place and the memory of r.
func (w *Waiters) free(r *waiter) {
	if r.counted {
		w.count--
	}
	w.bytes -= r.bytes
	r.counted, r.bytes = false, 0
}

// cost is the memory of r in bytes, approximately.
func (r *waiter) cost() int {
	sum := waiterBytes
	for _, p := range r.wanted {
		sum += positionBytes + 2*len(p.AggregateID) // the name, and the key
	}
	return sum
}

// forget ends r's wait for one aggregate.
func (w *Waiters) forget(r *waiter, key string) {
	s := w.entries[key]
	if s == nil {
		return
	}
	delete(s.waiters, r)
	if len(s.waiters) == 0 {
		delete(w.entries, key)
		delete(w.dirty, key)
	}
}
