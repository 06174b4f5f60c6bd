package pgtest

import (
	"context"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Statements records what each session of a pool sends, in the order of sending. A batch is one entry. The preparation of a
// statement is an entry, too. A pool uses Statements as its tracer.
type Statements struct {
	Tracer

	mu  sync.Mutex
	all map[*pgx.Conn][]string
}

// NewStatements returns an empty record.
func NewStatements() *Statements {
	s := &Statements{all: map[*pgx.Conn][]string{}}
	s.Before = func(_ context.Context, conn *pgx.Conn, trip Trip) {
		var sql []string
		for _, sent := range trip {
			sql = append(sql, sent.SQL)
		}
		s.add(conn, strings.Join(sql, "; "))
	}
	return s
}

// Forget removes all entries.
func (s *Statements) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.all)
}

// After returns the entry after the first one that contains text, in the same session. found is false if there is none.
func (s *Statements) After(text string) (next string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sent := range s.all {
		for i := range len(sent) - 1 {
			if strings.Contains(sent[i], text) && !strings.HasPrefix(sent[i], preparation) {
				return sent[i+1], true
			}
		}
	}
	return "", false
}

// preparation is the first part of an entry for the preparation of a statement.
const preparation = "prepare "

func (s *Statements) add(conn *pgx.Conn, statement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[conn] = append(s.all[conn], statement)
}

// TracePrepareStart implements pgx.PrepareTracer.
func (s *Statements) TracePrepareStart(ctx context.Context, conn *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	s.add(conn, preparation+data.SQL)
	return ctx
}

// TracePrepareEnd implements pgx.PrepareTracer.
func (*Statements) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}
