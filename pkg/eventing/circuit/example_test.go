package circuit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/circuit"
)

// After five failures in a row the owner is left alone, and callers hear that at once.
func ExampleCircuit_Do() {
	errAway := errors.New("owner is unavailable")
	owner := circuit.New(10, time.Second) // ten calls at once, a second for each
	calls := 0
	for range 7 {
		err := owner.Do(context.Background(), func(context.Context) error {
			calls++
			return errAway
		}, func(err error) bool { return errors.Is(err, errAway) })
		if errors.Is(err, circuit.ErrOpen) {
			fmt.Println("refused after", calls, "calls")
		}
	}
	// Output:
	// refused after 5 calls
	// refused after 5 calls
}
