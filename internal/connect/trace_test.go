package connect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"example.com/lockstep/internal/pgtest"
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
			pgtest.Exec(b, pool, sql)
		}
	})
}

// The text of a batch is bounded, and each statement is cut between two runes.
func TestTextsOfABatchAreBounded(t *testing.T) {
	t.Parallel()
	b := &pgx.Batch{}
	if got := texts(b.QueuedQueries); got != "" {
		t.Errorf("without statements: %q", got)
	}
	b.Queue("SELECT 1")
	b.Queue("VALUES ('" + strings.Repeat("é", maxText) + "')")
	b.Queue("SELECT 3")
	want := "SELECT 1; VALUES ('" + strings.Repeat("é", (maxText-len("VALUES ('"))/2) + "; SELECT 3"
	if diff := cmp.Diff(want, texts(b.QueuedQueries)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	for range maxTexts {
		b.Queue("SELECT 4")
	}
	if got := texts(b.QueuedQueries); strings.Count(got, ";") != maxTexts-1 {
		t.Errorf("of %d statements: %q, want %d", len(b.QueuedQueries), got, maxTexts)
	}
}

// TestSpansOfOperations traces operations in the mode in which statements are prepared, and in the
// mode for transaction poolers. An operation of a caller without a span has none, and neither has a
// wait for a connection.
func TestSpansOfOperations(t *testing.T) {
	t.Parallel()
	url := pairtest.New(t).VideoURL
	batches := []string{
		"request > BATCH size=2 text=SELECT 1; SELECT 2",
		"BATCH > SELECT failed=22012 text=SELECT 1 / 0 operation=SELECT",
		"request > BATCH failed=22012 size=3 text=SELECT 1; SELECT 1 / 0; SELECT 3",
		"request > SELECT text=SELECT 1 operation=SELECT",
		"request > SELECT failed=22012 text=SELECT 1 / 0 operation=SELECT",
	}
	for mode, queries := range map[pgx.QueryExecMode][]string{
		pgx.QueryExecModeCacheStatement: {
			"request > connect",
			"SELECT > PREPARE text=SELECT $1::int",
			"request > SELECT text=SELECT $1::int operation=SELECT",
			"request > DELETE failed=42P01 text=-- of nothing\nDELETE FROM nothing operation=DELETE",
			"SELECT > PREPARE failed=42703 text=SELECT nothing, $1::int",
			"request > SELECT failed=42703 text=SELECT nothing, $1::int operation=SELECT",
		},
		pgx.QueryExecModeExec: {
			"request > connect",
			"request > SELECT text=SELECT $1::int operation=SELECT",
			"request > DELETE failed=42P01 text=-- of nothing\nDELETE FROM nothing operation=DELETE",
			"request > SELECT failed=42703 text=SELECT nothing, $1::int operation=SELECT",
		},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			traces := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
			cfg := pgtest.Settings(t, url)
			cfg.ConnConfig.Tracer, cfg.ConnConfig.DefaultQueryExecMode = newTracer(traces), mode
			pool := pgtest.Open(t, cfg)
			ctx, request := traces.Tracer("test").Start(t.Context(), "request")
			_, _ = pool.Exec(ctx, "SELECT $1::int", 1)
			_, _ = pool.Exec(t.Context(), "SELECT 'without a trace'")
			_, _ = pool.Exec(ctx, "-- of nothing\nDELETE FROM nothing")
			_, _ = pool.Exec(ctx, "SELECT nothing, $1::int", 1)
			for _, statements := range [][]string{{"SELECT 1", "SELECT 2"}, {"SELECT 1", "SELECT 1 / 0", "SELECT 3"}, {"SELECT 1"}, {"SELECT 1 / 0"}} {
				b := &pgx.Batch{}
				for _, sql := range statements {
					b.Queue(sql)
				}
				_ = pool.SendBatch(ctx, b).Close()
			}
			request.End()
			names := map[oteltrace.SpanID]string{}
			for _, s := range spans.Ended() {
				names[s.SpanContext().SpanID()] = s.Name()
			}
			var got []string
			for _, s := range spans.Ended() {
				if s.Name() != "request" {
					got = append(got, names[s.Parent().SpanID()]+" > "+describeSpan(t, s))
				}
			}
			if diff := cmp.Diff(slices.Concat(queries, batches), got); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

func describeSpan(t *testing.T, s trace.ReadOnlySpan) string {
	t.Helper()
	values := map[attribute.Key]string{}
	for _, a := range s.Attributes() {
		values[a.Key] = a.Value.String()
	}
	if s.SpanKind() != oteltrace.SpanKindClient || values["db.system.name"] != "postgresql" {
		t.Errorf("%s: kind %s, of %q", s.Name(), s.SpanKind(), values["db.system.name"])
	}
	text := s.Name()
	if code := values["db.response.status_code"]; s.Status().Code == codes.Error {
		text += " failed=" + code
		if !strings.Contains(s.Status().Description, code) || values["error.type"] != code {
			t.Errorf("%s: %q, error.type %q", s.Name(), s.Status().Description, values["error.type"])
		}
	}
	for _, a := range []struct{ name, key string }{
		{"size", "db.operation.batch.size"}, {"text", "db.query.text"}, {"operation", "db.operation.name"},
	} {
		if v := values[attribute.Key(a.key)]; v != "" {
			text += " " + a.name + "=" + v
		}
	}
	return text
}

// A statement that fails with a long message, and one that does not begin with a word, have spans
// with short names and descriptions.
func TestTextsOfSpansAreBounded(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	traces := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	tracer := newTracer(traces)
	parent, request := traces.Tracer("test").Start(t.Context(), "request")
	defer request.End()
	for sql, want := range map[string]string{
		"select 1": "SELECT", "COMMIT;": "COMMIT", "/* of\n*/ -- it\n /***/ with x /* end */ FROM": "WITH", "/* a */ (SELECT 1) /* b */ UNION": "SQL", "": "SQL", "--": "SQL",
		"-- " + strings.Repeat("x", beginning-10) + "\nSELECT 1": "SQL", "-- " + strings.Repeat("x", beginning-20) + "\nSELECT 1": "SELECT",
		"SELECT('" + strings.Repeat("x", 5000) + "')": "SELECT", strings.Repeat("x", 5000): "SQL",
	} {
		ctx := tracer.TraceQueryStart(parent, nil, pgx.TraceQueryStartData{SQL: sql})
		tracer.TraceQueryEnd(ctx, nil, pgx.TraceQueryEndData{Err: errors.New("x" + strings.Repeat("é", 5000))})
		s := spans.Ended()[len(spans.Ended())-1]
		if s.Name() != want {
			t.Errorf("%.50q: %q, want %q", sql, s.Name(), want)
		}
		if !slices.Contains(s.Attributes(), attribute.String("error.type", "*errors.errorString")) {
			t.Errorf("%.50q: attributes %v", sql, s.Attributes())
		}
		if reason := s.Status().Description; len(reason) > maxReason || len(reason) < maxReason/2 || strings.Trim(reason, "xé") != "" {
			t.Errorf("%.50q: %d bytes of the error: %q", sql, len(reason), reason)
		}
	}
}

// TestOperationsAreMeasured counts operations of each kind, and those that fail. A batch that fails
// before it is sent is ended twice by pgx, and counts once. The test sets the process's meter
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
	for _, kind := range []string{"connect", "query", "prepare", "batch"} {
		if !operations(t, measured)[kind].begun {
			t.Errorf("%s: failures are not counted from 0 on", kind)
		}
	}
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
	_, err = pool.Exec(ctx, "SELECT $1::int FROM pg_sleep(0.01)", 1) // prepared
	must(err)
	_, err = pool.Exec(ctx, "SELECT 1 / 0")
	wrong(err)
	_, err = pool.Exec(ctx, "SELECT nothing, $1::int", 1) // the preparation fails, and the query with it
	wrong(err)
	nowhere, err := ReservePool(ctx, "postgres://nobody@127.0.0.1:1/nothing", 1)
	must(err)
	defer nowhere.Close()
	wrong(nowhere.Ping(ctx))
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
	if took := got["query"].seconds - before["query"].seconds; took < 0.01 || took > 60 {
		t.Errorf("queries took %f s", took)
	}
	for kind, n := range got {
		got[kind] = counted{operations: n.operations - before[kind].operations, failed: n.failed - before[kind].failed}
	}
	want := map[string]counted{
		"connect": {operations: 2, failed: 1}, "query": {operations: 3, failed: 2}, "prepare": {operations: 2, failed: 1},
		"batch": {operations: 3, failed: 2},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(counted{})); diff != "" {
		t.Errorf("operations, and those that failed, by kind (-want +got):\n%s", diff)
	}
}

// conventional are the bounds of db.client.operation.duration in OpenTelemetry's conventions.
var conventional = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}

// counted are the operations of a kind.
type counted struct {
	operations, failed uint64
	seconds            float64
	begun              bool // the counter of failures has a series
}

// operations returns the operations of connections by kind, and compares their buckets with those of
// the conventions.
func operations(t *testing.T, measured *metric.ManualReader) map[string]counted {
	t.Helper()
	all := map[string]counted{}
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
			data, ofTimes := m.Data.(metricdata.Histogram[float64])
			switch failures, _ := m.Data.(metricdata.Sum[int64]); m.Name {
			case "db.client.operation.duration":
				if !ofTimes {
					t.Errorf("durations are %T", m.Data)
				}
				for _, p := range data.DataPoints {
					all[kind(p.Attributes)] = counted{operations: p.Count, seconds: p.Sum}
					if !slices.Equal(p.Bounds, conventional) {
						t.Errorf("%s: bounds %v", kind(p.Attributes), p.Bounds)
					}
				}
			case "db.client.operation.errors":
				for _, p := range failures.DataPoints {
					n := all[kind(p.Attributes)]
					n.failed, n.begun = uint64(p.Value), true
					all[kind(p.Attributes)] = n
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
