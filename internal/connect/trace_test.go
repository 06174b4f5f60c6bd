package connect

import (
	"slices"
	"strings"
	"testing"

	"github.com/exaring/otelpgx"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

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

// The texts of a batch are cut between two runes.
func TestTextsOfABatchAreBounded(t *testing.T) {
	t.Parallel()
	b := &pgx.Batch{}
	if got := texts(b); got != "" {
		t.Errorf("without statements: %q", got)
	}
	b.Queue("SELECT 1")
	b.Queue("VALUES ('" + strings.Repeat("é", maxTexts) + "')")
	b.Queue("SELECT 3")
	got := texts(b)
	if want := "SELECT 1; VALUES ('" + strings.Repeat("é", (maxTexts-len("SELECT 1; VALUES ('"))/2); got != want {
		t.Errorf("%d bytes: %.40q, want %d: %.40q", len(got), got, len(want), want)
	}
}

// TestABatchHasOneSpan traces a batch and one that fails: a span with all statements for each,
// one more for the statement at fault, and none for the wait for a connection, which is
// measured all the same.
func TestABatchHasOneSpan(t *testing.T) {
	t.Parallel()
	spans, measured := tracetest.NewSpanRecorder(), metric.NewManualReader()
	traces := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	cfg, err := pgxpool.ParseConfig(pairtest.New(t).VideoURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = tracer{otelpgx.NewTracer(otelpgx.WithTracerProvider(traces),
		otelpgx.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(measured))))}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // no statement is prepared
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, request := traces.Tracer("test").Start(t.Context(), "request")
	for _, last := range []string{"SELECT 2", "SELECT 1 / 0"} {
		b := &pgx.Batch{}
		b.Queue("SELECT 1")
		b.Queue(last)
		if err := pool.SendBatch(ctx, b).Close(); (err != nil) != (last == "SELECT 1 / 0") {
			t.Errorf("%s: %v", last, err)
		}
	}
	request.End()

	var got []string
	for _, s := range spans.Ended() {
		if s.Name() != "connect" {
			got = append(got, s.Name()+": "+valueOf(s.Attributes(), "db.query.text"))
		}
	}
	want := []string{"batch start: SELECT 1; SELECT 2", "SELECT: SELECT 1 / 0", "batch start: SELECT 1; SELECT 1 / 0", "request: "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if n := acquired(t, measured); n != 2 {
		t.Errorf("%d waits for a connection are measured, want 2", n)
	}
}

func valueOf(attributes []attribute.KeyValue, key attribute.Key) string {
	i := slices.IndexFunc(attributes, func(a attribute.KeyValue) bool { return a.Key == key })
	if i < 0 {
		return ""
	}
	return attributes[i].Value.AsString()
}

// acquired is how many waits for a connection were measured.
func acquired(t *testing.T, measured *metric.ManualReader) (n uint64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := measured.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		histogram, ok := m.Data.(metricdata.Histogram[float64])
		if !ok {
			continue
		}
		for _, p := range histogram.DataPoints {
			if v, _ := p.Attributes.Value("pgx.operation.type"); v.AsString() == "acquire" {
				n += p.Count
			}
		}
	}
	return n
}
