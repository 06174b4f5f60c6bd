package connect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
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

// The text of a batch is bounded, and each statement is cut between two runes.
func TestTextsOfABatchAreBounded(t *testing.T) {
	t.Parallel()
	b := &pgx.Batch{}
	if got := texts(b); got != "" {
		t.Errorf("without statements: %q", got)
	}
	b.Queue("SELECT 1")
	b.Queue("VALUES ('" + strings.Repeat("é", maxText) + "')")
	b.Queue("SELECT 3")
	want := "SELECT 1; VALUES ('" + strings.Repeat("é", (maxText-len("VALUES ('"))/2) + "; SELECT 3"
	if diff := cmp.Diff(want, texts(b)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	for range maxTexts {
		b.Queue("SELECT 4")
	}
	if got := texts(b); strings.Count(got, ";") != maxTexts-1 {
		t.Errorf("of %d statements: %q, want %d", len(b.QueuedQueries), got, maxTexts)
	}
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
	cfg.ConnConfig.Tracer = newTracer(traces)
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
	want := []string{"BATCH: SELECT 1; SELECT 2", "SELECT: SELECT 1 / 0", "BATCH: SELECT 1; SELECT 1 / 0", "request: "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// TestOperationsAreMeasured counts one operation of each kind, and one that fails. A batch that
// fails before it is sent is ended twice by pgx, and counts once. The test sets the process's meter
// provider, and other pools of the process would be counted too, so it must not run in parallel.
func TestOperationsAreMeasured(t *testing.T) {
	measured, provider := metric.NewManualReader(), otel.GetMeterProvider()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(measured)))
	t.Cleanup(func() { otel.SetMeterProvider(provider) })
	url := pairtest.New(t).VideoURL
	before := operations(t, measured)
	pool, err := ReservePool(t.Context(), url, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	wrong := func(err error) {
		t.Helper()
		if err == nil {
			t.Error("it succeeds")
		}
	}
	ctx := t.Context()
	_, err = pool.Exec(ctx, "CREATE TEMPORARY TABLE copied (a int)")
	must(err)
	_, err = pool.Exec(ctx, "SELECT $1::int", 1) // prepared, as is the query behind a COPY
	must(err)
	_, err = pool.Exec(ctx, "SELECT 1 / 0")
	wrong(err)
	_, err = pool.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"a"}, pgx.CopyFromRows([][]any{{1}, {2}}))
	must(err)
	one, bad, early := &pgx.Batch{}, &pgx.Batch{}, &pgx.Batch{}
	one.Queue("SELECT 1")
	must(pool.SendBatch(ctx, one).Close())
	bad.Queue("SELECT 1 / 0")
	results := pool.SendBatch(ctx, bad)
	_, err = results.Exec()
	wrong(err)
	_ = results.Close() // it may repeat the statement's error
	early.Queue("SELEC 1")
	wrong(pool.SendBatch(ctx, early).Close())

	got := operations(t, measured)
	for kind, n := range got {
		got[kind] = [2]uint64{n[0] - before[kind][0], n[1] - before[kind][1]}
	}
	want := map[string][2]uint64{"connect": {1, 0}, "query": {3, 1}, "prepare": {2, 0}, "copy": {1, 0}, "batch": {3, 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations, and those that failed, by kind (-want +got):\n%s", diff)
	}
}

// operations returns the number of operations of connections, and of those that failed, by kind.
func operations(t *testing.T, measured *metric.ManualReader) map[string][2]uint64 {
	t.Helper()
	all := map[string][2]uint64{}
	kind := func(a attribute.Set) string {
		v, _ := a.Value("pgx.operation.type")
		return v.AsString()
	}
	scopes, err := telemetry.Recorded().Produce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var failed metricdata.ResourceMetrics
	if err := measured.Collect(t.Context(), &failed); err != nil {
		t.Fatal(err)
	}
	for _, s := range append(scopes, failed.ScopeMetrics...) {
		for _, m := range s.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					all[kind(p.Attributes)] = [2]uint64{p.Count, all[kind(p.Attributes)][1]}
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					all[kind(p.Attributes)] = [2]uint64{all[kind(p.Attributes)][0], uint64(p.Value)}
				}
			}
		}
	}
	return all
}

// TestWaitsForAConnectionAreCounted waits for the only connection of two pools: once until it is
// there, and twice in vain. It sets the process's meter provider, so it must not run in parallel.
func TestWaitsForAConnectionAreCounted(t *testing.T) {
	measured, before := metric.NewManualReader(), otel.GetMeterProvider()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(measured)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	url := pairtest.New(t).VideoURL
	for range 2 {
		pool, err := ReservePool(t.Context(), url, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		held, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leaving, leave := context.WithCancel(t.Context())
		leave()
		for range 2 {
			if _, err := pool.Acquire(leaving); !errors.Is(err, context.Canceled) {
				t.Errorf("a wait without a connection: %v", err)
			}
		}
		held.Release()
	}
	got := sums(t, measured)
	if got["database.pool.acquires"] != 2 || got["database.pool.canceled_acquires"] != 4 || got["database.pool.wait"] <= 0 {
		t.Errorf("sums %v, want 2 waits with and 4 without a connection, and their time", got)
	}
}

func valueOf(attributes []attribute.KeyValue, key attribute.Key) string {
	i := slices.IndexFunc(attributes, func(a attribute.KeyValue) bool { return a.Key == key })
	if i < 0 {
		return ""
	}
	return attributes[i].Value.AsString()
}

// sums are the values of all counters in seconds or numbers.
func sums(t *testing.T, measured *metric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := measured.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[float64]); ok && len(sum.DataPoints) == 1 {
				values[m.Name] = sum.DataPoints[0].Value
			}
		}
	}
	return values
}
