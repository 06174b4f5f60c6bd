package rebuild_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/rebuild"
)

// After the statement that takes the locks for which reads or events wait, only COMMIT is sent. With more statements, they would
// wait for more round trips to a database that is far away.
func TestLocksAreHeldForOneRoundTrip(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	sent := &sentStatements{}
	f.connect(t, sent)
	for _, step := range []struct {
		name  string
		do    func() error
		locks []string
	}{
		{
			"run", func() error { _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); return err },
			[]string{"CREATE TRIGGER mirror_inserted", "ACCESS EXCLUSIVE"},
		},
		{"rollback", func() error { return f.Rollback(t.Context(), ada) }, []string{"ACCESS EXCLUSIVE"}},
		{"finish", func() error { return f.Finish(t.Context(), ada, false) }, []string{"ACCESS EXCLUSIVE"}},
	} {
		sent.forget()
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for _, lock := range step.locks {
			if next := sent.after(lock); next != "commit" {
				t.Errorf("%s sends %.60q after %s, want commit", step.name, next, lock)
			}
		}
	}
}

// sentStatements has the statements that each session sends, batches and PREPARE included.
type sentStatements struct {
	mu  sync.Mutex
	all map[*pgx.Conn][]string
}

func (s *sentStatements) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = map[*pgx.Conn][]string{}
}

func (s *sentStatements) add(conn *pgx.Conn, statement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil {
		s.all[conn] = append(s.all[conn], statement)
	}
}

// after returns the statement after the first one with this text in the same session, or a message if there is none.
func (s *sentStatements) after(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, statements := range s.all {
		for i, statement := range statements[:max(0, len(statements)-1)] {
			if strings.Contains(statement, text) {
				return statements[i+1]
			}
		}
	}
	return "nothing, because it is not sent"
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *sentStatements) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.add(conn, data.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*sentStatements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (s *sentStatements) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	s.add(conn, "a batch")
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*sentStatements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (*sentStatements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TracePrepareStart implements pgx.PrepareTracer.
func (s *sentStatements) TracePrepareStart(ctx context.Context, conn *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	s.add(conn, "prepare "+data.SQL)
	return ctx
}

// TracePrepareEnd implements pgx.PrepareTracer.
func (*sentStatements) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}
