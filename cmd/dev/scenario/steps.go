package scenario

import "fmt"

// A scenario is a script, like a test. The first step that fails ends the script. The steps call
// must and got. If a step fails, must and got panic. attempt turns the panic into an error.

type failure struct{ error }

// attempt runs the steps. If a step fails, attempt returns the error of that step.
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

// must ends the scenario if err is not nil.
func must(err error) {
	if err != nil {
		panic(failure{err}) //nolint:forbidigo // attempt recovers it, in this package
	}
}

// got returns value. It ends the scenario if err is not nil.
func got[T any](value T, err error) T {
	must(err)
	return value
}

// failf ends the scenario. A script calls failf if the pair has not kept a promise.
func failf(format string, args ...any) { must(fmt.Errorf(format, args...)) }
