package connect

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/telemetry"
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

// TestABatchHasOneSpan traces a batch and one that fails: a span with all statements for each,
// one more for the statement at fault, and none for the wait for a connection.
func TestABatchHasOneSpan(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	traces := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	cfg, err := pgxpool.ParseConfig(pairtest.New(t).VideoURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = multitracer.New(newSpans(traces), newMeasures())
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
}

// TestOperationsAreMeasured has each kind of operations, without a trace. A row that is not
// there is no error. A batch fails with its statement.
func TestOperationsAreMeasured(t *testing.T) { //nolint:paralleltest // it measures the process
	url, reader, meters := pairtest.New(t).VideoURL, metric.NewManualReader(metric.WithProducer(telemetry.Histograms)), otel.GetMeterProvider()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	defer otel.SetMeterProvider(meters)
	before := counted(t, reader)
	pool, err := OpenPool(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	err = pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		var n int
		b := &pgx.Batch{}
		b.Queue("SELECT 1 / 0")
		if err := c.SendBatch(t.Context(), b).Close(); err == nil {
			t.Error("a batch has divided by zero")
		}
		if err := c.QueryRow(t.Context(), "SELECT 1 WHERE false", pgx.QueryExecModeExec).Scan(&n); !errors.Is(err, pgx.ErrNoRows) {
			t.Errorf("no row is there: %v", err)
		}
		if _, err := c.Exec(t.Context(), "CREATE TEMPORARY TABLE copied (n int)", pgx.QueryExecModeExec); err != nil {
			return err
		}
		_, err := c.CopyFrom(t.Context(), pgx.Identifier{"copied"}, []string{"n"}, pgx.CopyFromRows([][]any{{int32(1)}}))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := counted(t, reader)
	for kind, n := range before {
		got[kind] -= n
	}
	want := map[string]int64{"acquire": 1, "connect": 1, "batch": 1, "batch failed": 2, "query": 2, "prepare": 1, "copy": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("measured (-want +got):\n%s", diff)
	}
}

func valueOf(attributes []attribute.KeyValue, key attribute.Key) string {
	i := slices.IndexFunc(attributes, func(a attribute.KeyValue) bool { return a.Key == key })
	if i < 0 {
		return ""
	}
	return attributes[i].Value.AsString()
}

// counted has the operations that were measured, and those that failed, by their kinds.
func counted(t *testing.T, measured *metric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := measured.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, in := range all.ScopeMetrics {
		for _, m := range in.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[valueOf(p.Attributes.ToSlice(), "pgx.operation.type")] = int64(p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[valueOf(p.Attributes.ToSlice(), "pgx.operation.type")+" failed"] = p.Value
				}
			}
		}
	}
	return got
}
