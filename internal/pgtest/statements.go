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
	starts

	mu  sync.Mutex
	all map[*pgx.Conn][]string
}

// Forget removes all entries.
func (s *Statements) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
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
	if s.all == nil {
		s.all = map[*pgx.Conn][]string{}
	}
	s.all[conn] = append(s.all[conn], statement)
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *Statements) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.add(conn, data.SQL)
	return ctx
}

// TraceBatchStart implements pgx.BatchTracer.
func (s *Statements) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var sql []string
	for _, q := range data.Batch.QueuedQueries {
		sql = append(sql, q.SQL)
	}
	s.add(conn, strings.Join(sql, "; "))
	return ctx
}

// TracePrepareStart implements pgx.PrepareTracer.
func (s *Statements) TracePrepareStart(ctx context.Context, conn *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	s.add(conn, preparation+data.SQL)
	return ctx
}

// TracePrepareEnd implements pgx.PrepareTracer.
func (*Statements) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}
