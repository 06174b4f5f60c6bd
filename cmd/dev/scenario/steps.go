package scenario

import "fmt"

// A scenario is a script, like a test. The first step that fails ends it. The steps of a script
// are calls of must and got, which panic with a failure. attempt turns the panic into an error.

type failure struct{ error }

// attempt runs the steps, and returns the error of the step that failed.
func attempt(steps func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p) //nolint:forbidigo // a bug is passed on
		}
	}()
	steps()
	return nil
}

// must is a step that returns nothing.
func must(err error) {
	if err != nil {
		panic(failure{err}) //nolint:forbidigo // attempt recovers it, in this package
	}
}

// got is the value that a step returns.
func got[T any](value T, err error) T {
	must(err)
	return value
}

// failf ends the scenario: the pair has not done what it promises.
func failf(format string, args ...any) { must(fmt.Errorf(format, args...)) }
