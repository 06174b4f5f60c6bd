package consistency_test

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/notify"
)

// query is a Query of two functions.
type query struct {
	read  func(context.Context) (consistency.Freshness, error)
	fetch func(context.Context) error
}

func (q query) ReadProjection(ctx context.Context) (consistency.Freshness, error) { return q.read(ctx) }
func (q query) FetchFromOwner(ctx context.Context) error                          { return q.fetch(ctx) }

func newReader() *consistency.Reader {
	return consistency.NewReader(consistency.NewWaiters(1, nil, notify.New(nil, "", "test", slog.New(slog.DiscardHandler))))
}

// An owner that is slow with some readers' questions answers others meanwhile.
func TestOwnerIsAskedConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const readers = 64
		r, goOn, underWay := newReader(), make(chan struct{}), make(chan struct{}, readers)
		d, err := consistency.Request{Mode: consistency.FullyConsistent}.Requirement("video", isVideo)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				_, _ = r.Read(t.Context(), d, query{fetch: func(context.Context) error {
					underWay <- struct{}{}
					<-goOn
					return nil
				}})
			})
		}
		synctest.Wait()
		if len(underWay) != readers {
			t.Errorf("%d of %d questions are under way", len(underWay), readers)
		}
		close(goOn)
		all.Wait()
	})
}

// Reads that require something are counted by their outcome, and only these.
func TestReadsWithARequirementAreCounted(t *testing.T) {
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	r := newReader()
	for _, q := range []consistency.Request{{}, {Token: consistency.Token{Positions: []consistency.Position{of("video", "v1", 1)}}.String()}, {Mode: consistency.FullyConsistent}} {
		d, err := q.Requirement("video", isVideo)
		if err != nil {
			t.Fatal(err)
		}
		met := func(context.Context) (consistency.Freshness, error) { return consistency.Reached, nil }
		if _, err := r.Read(t.Context(), d, query{met, func(context.Context) error { return nil }}); err != nil {
			t.Fatal(err)
		}
	}
	// No failures: a read that takes old data, and a caller that hangs up.
	token := consistency.Token{Positions: []consistency.Position{of("video", "v1", 1)}}.String()
	old, err := consistency.Request{Mode: consistency.MinimizeLatency, Token: token}.Requirement("video", isVideo)
	if err != nil {
		t.Fatal(err)
	}
	behind := func(context.Context) (consistency.Freshness, error) { return consistency.Behind, nil }
	if outcome, err := r.Read(t.Context(), old, query{read: behind}); err != nil || outcome != consistency.Stale {
		t.Fatal(outcome, err)
	}
	fresh, err := consistency.Request{Token: token}.Requirement("video", isVideo)
	if err != nil {
		t.Fatal(err)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	cut := func(ctx context.Context) (consistency.Freshness, error) {
		hangUp()
		return consistency.Behind, ctx.Err()
	}
	if outcome, err := r.Read(ctx, fresh, query{read: cut}); err == nil || outcome != consistency.Failed {
		t.Fatal(outcome, err)
	}
	// Each series begins at 0, before its first read.
	want := map[string]int64{"fresh": 1, "waited": 0, "authority": 1, "stale": 0, "failed": 0}
	if reads := counts(t, reader, "consistency.reads", "outcome"); !maps.Equal(reads, want) {
		t.Errorf("reads %v, want %v", reads, want)
	}
	want = map[string]int64{"answered": 1, "away": 0, "refused": 0}
	if questions := counts(t, reader, "consistency.questions", "result"); !maps.Equal(questions, want) {
		t.Errorf("questions %v, want %v", questions, want)
	}
}

// counts reads a counter by an attribute.
func counts(t *testing.T, reader *metric.ManualReader, name, by string) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	n := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				value, _ := p.Attributes.Value(attribute.Key(by))
				n[value.AsString()] += p.Value
			}
		}
	}
	return n
}
