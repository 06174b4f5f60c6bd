package history

import (
	"errors"
	"os"
	"testing"
)

// shown is how many violations a test prints.
const shown = 10

// Require fails the test if records violate a promise, and then keeps them in a file,
// for a person to read.
func Require(tb testing.TB, records []Record) {
	tb.Helper()
	found := Check(records)
	if len(found) == 0 {
		return
	}
	for _, v := range found[:min(len(found), shown)] {
		tb.Error(v)
	}
	path, err := keep(records)
	tb.Logf("%d violations; the history is in %s (%v)", len(found), path, err)
}

// keep writes a file that outlives the test.
func keep(records []Record) (string, error) {
	file, err := os.CreateTemp("", "lockstep-history-*.jsonl")
	if err != nil {
		return "", err
	}
	log := &Log{file: file}
	return file.Name(), errors.Join(log.Add(records...), log.Close())
}

// New returns a log that several processes of one test can Open by its path, and
// which ends with the test.
func New(tb testing.TB) (log *Log, path string) {
	tb.Helper()
	path = tb.TempDir() + "/history.jsonl"
	log, err := Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = log.Close() })
	return log, path
}
