package connect

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest/pairtest"
)

// BenchmarkTracer compares the work of the tracer for a query that no trace has, as all are
// without an endpoint, with that of the smallest query of a primary key.
func BenchmarkTracer(b *testing.B) {
	pool, err := OpenPool(b.Context(), pairtest.New(b).VideoURL)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	const sql = `SELECT version FROM videos WHERE video_id = '01902a5e-7c9b-7a5b-9a3e-000000000000'`
	b.Run("tracer", func(b *testing.B) {
		tracer := pool.Config().ConnConfig.Tracer
		for b.Loop() {
			ctx := tracer.TraceQueryStart(b.Context(), nil, pgx.TraceQueryStartData{SQL: sql})
			tracer.TraceQueryEnd(ctx, nil, pgx.TraceQueryEndData{})
		}
	})
	b.Run("query", func(b *testing.B) {
		for b.Loop() {
			if _, err := pool.Exec(b.Context(), sql); err != nil {
				b.Fatal(err)
			}
		}
	})
}
