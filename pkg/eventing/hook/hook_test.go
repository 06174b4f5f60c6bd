package hook

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// logged is a log that the test reads after the calls have stopped.
func logged() (*bytes.Buffer, *slog.Logger) {
	text := &bytes.Buffer{}
	return text, slog.New(slog.NewTextHandler(text, nil))
}

func TestCallsAreMadeInOrderAndSurviveAPanic(t *testing.T) {
	t.Parallel()
	text, log := logged()
	c := New(log)
	var got []int
	for i := range 10 {
		c.Add(t.Context(), "OnTest", func(context.Context) {
			if i == 3 {
				panic("kettle")
			}
			got = append(got, i)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the calls outlive it
	c.Start(ctx)(t.Context())
	if len(got) != 9 || got[0] != 0 || got[3] != 4 || got[8] != 9 {
		t.Errorf("calls %v, want 0 to 9 in order without 3", got)
	}
	if !strings.Contains(text.String(), "hook=OnTest panic=kettle") || strings.Count(text.String(), "panic=") != 1 {
		t.Errorf("log %q, want one panic", text)
	}
}

func TestACallThatBlocksDropsCallsAndDelaysNobody(t *testing.T) {
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	text, log := logged()
	c := New(log, "OnTest", "OnNothing")
	stop := c.Start(t.Context())
	blocked, ended := make(chan struct{}), make(chan struct{})
	c.Add(t.Context(), "OnTest", func(ctx context.Context) {
		close(blocked)
		<-ctx.Done()
		close(ended)
	})
	<-blocked
	for range maxWaiting {
		c.Add(t.Context(), "OnTest", func(context.Context) { t.Error("called after the end") })
	}
	if text.Len() > 0 {
		t.Errorf("%q although there is room", text)
	}
	c.Add(t.Context(), "OnTest", func(context.Context) { t.Error("called beyond the bound") })
	if !strings.Contains(text.String(), "too slow") {
		t.Errorf("log %q names no dropped call", text)
	}
	until, cancel := context.WithCancel(t.Context())
	cancel()
	stop(until) // returns although the call blocks, and ends the call's context
	<-ended
	if !strings.Contains(text.String(), "dropped=1000") {
		t.Errorf("log %q does not count the calls that are dropped at the end", text)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counted := map[string]int64{}
	for _, p := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		hook, _ := p.Attributes.Value("hook")
		counted[hook.AsString()] = p.Value
	}
	if want := map[string]int64{"OnTest": 1001, "OnNothing": 0}; !maps.Equal(counted, want) {
		t.Errorf("dropped calls %v, want %v", counted, want)
	}
}

// The time of Run may be over when there is nothing to call any more, or when the last call has not returned.
func TestAnEndWithoutACallIsNotLogged(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	synctest.Test(t, func(t *testing.T) {
		for _, blocks := range []bool{false, true} {
			text, log := logged()
			c := New(log)
			stop := c.Start(t.Context())
			c.Add(t.Context(), "OnTest", func(ctx context.Context) {
				if blocks {
					<-ctx.Done()
				}
			})
			synctest.Wait()
			stop(over)
			synctest.Wait()
			if logged := text.Len() > 0; logged != blocks {
				t.Errorf("%q although the hook has returned: %t", text, !blocks)
			}
		}
	})
	for range 100 { // the goroutine of the calls may end first
		text, log := logged()
		New(log).Start(t.Context())(over)
		if text.Len() > 0 {
			t.Fatalf("%q although no hook is called", text)
		}
	}
}
