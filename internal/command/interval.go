package command

import (
	"errors"
	"flag"
	"time"
)

// interval is the value of a flag. It is a duration that is not negative.
type interval struct{ value *time.Duration }

// IntervalFlag adds a flag to f that stores a duration in value. The flag refuses a negative duration.
// In the help, the word between backquotes in usage stands for the flag's value.
func IntervalFlag(f *flag.FlagSet, value *time.Duration, name string, byDefault time.Duration, usage string) {
	*value = byDefault
	f.Var(interval{value}, name, usage)
}

func (i interval) String() string {
	if i.value == nil { // package flag compares defaults with the String of a zero value
		return ""
	}
	return i.value.String()
}

func (i interval) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		err = errors.New("must not be negative")
	}
	if err == nil {
		*i.value = d
	}
	return err
}
