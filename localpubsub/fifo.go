package localpubsub

// fifo is a queue in a ring that grows as needed and shrinks when it becomes
// empty. The zero value is an empty queue.
type fifo[T any] struct {
	ring  []T
	first int
	size  int
}

const smallRing = 16

func (f *fifo[T]) len() int { return f.size }

func (f *fifo[T]) push(v T) {
	if f.size == len(f.ring) {
		f.grow()
	}
	f.ring[(f.first+f.size)%len(f.ring)] = v
	f.size++
}

// pop removes and returns the oldest element. The queue must not be empty.
func (f *fifo[T]) pop() T {
	var zero T
	v := f.ring[f.first]
	f.ring[f.first] = zero
	f.first = (f.first + 1) % len(f.ring)
	f.size--
	if f.size == 0 && len(f.ring) > smallRing {
		*f = fifo[T]{}
	}
	return v
}

// at returns the i-th oldest element.
func (f *fifo[T]) at(i int) T { return f.ring[(f.first+i)%len(f.ring)] }

// promote swaps the i-th oldest element with the oldest one.
func (f *fifo[T]) promote(i int) {
	j := (f.first + i) % len(f.ring)
	f.ring[f.first], f.ring[j] = f.ring[j], f.ring[f.first]
}

func (f *fifo[T]) grow() {
	ring := make([]T, max(smallRing, 2*len(f.ring)))
	n := copy(ring, f.ring[f.first:])
	copy(ring[n:], f.ring[:f.first])
	f.ring, f.first = ring, 0
}
