package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
)

// maxLine bounds one record on disk, in bytes.
const maxLine = 1 << 20

// Log is a file to which several goroutines and processes append records. The records
// of one Add are contiguous.
type Log struct {
	mu   sync.Mutex
	file *os.File
}

// Open opens the file, or creates it.
func Open(path string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a test names it
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	return &Log{file: file}, nil
}

// Add appends records in one write. The kernel does not mix this write with the writes of other
// processes. Add returns when the records are in the file.
func (l *Log) Add(records ...Record) error {
	lines, err := encode(records)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// A killed process may have left an incomplete line. This newline ends it.
	if _, err := l.file.Write(append([]byte{'\n'}, lines...)); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

// Records returns all records of the file, in its order.
func (l *Log) Records() ([]Record, error) {
	info, err := l.file.Stat()
	if err != nil {
		return nil, err
	}
	return decode(io.NewSectionReader(l.file, 0, info.Size()))
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

func encode(records []Record) ([]byte, error) {
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	for _, r := range records {
		if err := to.Encode(r); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
	}
	return lines.Bytes(), nil
}

// decode skips a line that was cut off. The process that wrote the line was killed during the
// write, so it did nothing after that.
func decode(from io.Reader) ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		if len(line) == 0 || line[0] == '{' && line[len(line)-1] != '}' {
			continue
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("history, line %d: %w", n, err)
		}
		records = append(records, r)
	}
	return records, lines.Err()
}

// shown is how many violations a test prints.
const shown = 10

// Require fails the test if records violate a promise. It then keeps the records in a file, for a
// person to read.
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

// New returns a log that ends with the test. Other processes of the test can Open it by its path.
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
