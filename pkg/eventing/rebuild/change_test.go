package rebuild_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/rebuild"
)

// Statements that wait for no lock of the exchange come between its check of the shapes and its exclusive locks. The
// exchange would leave what they make with the table that is no longer served.
func TestAChangeJustBeforeTheExchangeIsSeen(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"a right":             `GRANT TRIGGER ON app.one TO app_service`,
		"a materialized view": `CREATE MATERIALIZED VIEW app.made AS SELECT count(*) FROM app.one`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 10)
			other := f.admin
			f.connect(t, &just{before: "IN ACCESS EXCLUSIVE MODE", do: func() {
				if _, err := other.Exec(t.Context(), sql); err != nil {
					t.Error(err)
				}
			}})
			if _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); !errors.Is(err, rebuild.ErrShape) {
				t.Errorf("the rebuild: %v, want ErrShape", err)
			}
			f.phase(t, rebuild.Comparing)
		})
	}
}

// just is a tracer that calls do once, before the first statement that contains the text before.
type just struct {
	before string
	do     func()
	once   sync.Once
}

// TraceQueryStart implements pgx.QueryTracer.
func (j *just) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, j.before) {
		j.once.Do(j.do)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*just) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
