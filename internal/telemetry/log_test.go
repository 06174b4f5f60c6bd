package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/internal/telemetry"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
)

func inSpan(t testing.TB) context.Context {
	t.Helper()
	tid, err := trace.TraceIDFromHex(traceID)
	if err != nil {
		t.Fatal(err)
	}
	sid, err := trace.SpanIDFromHex(spanID)
	if err != nil {
		t.Fatal(err)
	}
	return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: tid, SpanID: sid, TraceFlags: trace.FlagsSampled,
	}))
}

func line(t testing.TB, out *bytes.Buffer) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("decode line %q: %v", out, err)
	}
	if _, err := time.Parse(time.RFC3339Nano, got["time"].(string)); err != nil {
		t.Errorf("time: %v", err)
	}
	delete(got, "time")
	return got
}

func TestLinesHaveTheShapeOfCloudLogging(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := telemetry.Logger(&out, slog.LevelInfo, "video", "my-project")
	log.With("lane", 3).WarnContext(inSpan(t), "publish deferred", "level", "kept", slog.Group("event", "msg", "kept", "level", "kept"))
	want := map[string]any{
		"severity": "WARNING", "message": "publish deferred", "service": "video", "lane": 3.0, "level": "kept",
		"event":                                map[string]any{"msg": "kept", "level": "kept"},
		"logging.googleapis.com/trace":         "projects/my-project/traces/" + traceID,
		"logging.googleapis.com/spanId":        spanID,
		"logging.googleapis.com/trace_sampled": true,
	}
	if diff := cmp.Diff(want, line(t, &out)); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestWithoutAProjectTheTraceIsBare(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	telemetry.Logger(&out, slog.LevelInfo, "video", "").InfoContext(inSpan(t), "ready")
	if got := line(t, &out)["logging.googleapis.com/trace"]; got != traceID {
		t.Errorf("trace %v, want %s", got, traceID)
	}
}

// A trace joins the lines of both services, even if nothing records the trace. A span that is not
// sampled is in no viewer.
func TestALineNamesNoSpanThatIsNotSampled(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	span := trace.SpanContextFromContext(inSpan(t)).WithTraceFlags(0)
	telemetry.Logger(&out, slog.LevelInfo, "video", "").InfoContext(trace.ContextWithSpanContext(t.Context(), span), "ready")
	want := map[string]any{"severity": "INFO", "message": "ready", "service": "video", "logging.googleapis.com/trace": traceID}
	if diff := cmp.Diff(want, line(t, &out)); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestWithoutASpanALineNamesNoTrace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	telemetry.Logger(&out, slog.LevelInfo, "video", "my-project").InfoContext(t.Context(), "ready")
	want := map[string]any{"severity": "INFO", "message": "ready", "service": "video"}
	if diff := cmp.Diff(want, line(t, &out)); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestSeverityAndLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: "DEBUG", slog.LevelInfo: "INFO", slog.LevelWarn: "WARNING", slog.LevelError: "ERROR", slog.LevelError + 4: "ERROR",
	} {
		var out bytes.Buffer
		telemetry.Logger(&out, level, "video", "").Log(t.Context(), level, "x")
		if got := line(t, &out)["severity"]; got != want {
			t.Errorf("severity of %s is %v, want %s", level, got, want)
		}
		out.Reset()
		telemetry.Logger(&out, level+1, "video", "").Log(t.Context(), level, "x")
		if out.Len() > 0 {
			t.Errorf("level %s was logged at minimum level %s", level, level+1)
		}
	}
}

// It sets the process's handler, so it must not run in parallel with other tests.
func TestErrorsOfTelemetryAreFewLines(t *testing.T) {
	var out bytes.Buffer
	telemetry.LogErrors(telemetry.Logger(&out, slog.LevelInfo, "video", ""))
	for range 1000 {
		otel.Handle(errors.New("no collector"))
	}
	want := map[string]any{
		"severity": "WARNING", "message": "telemetry is not sent, further errors of this minute are not logged",
		"service": "video", "error": "no collector",
	}
	if diff := cmp.Diff(want, line(t, &out)); diff != "" {
		t.Errorf("the only line (-want +got):\n%s", diff)
	}
}

// A file that is there and is no certificate is an error in the SDK's own log, which goes to the standard error by
// default, as text.
func TestTheLogOfTheSDKIsInOurs(t *testing.T) {
	var out bytes.Buffer
	telemetry.LogErrors(telemetry.Logger(&out, slog.LevelInfo, "video", ""))
	setup(t, map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://COLLECTOR", "OTEL_EXPORTER_OTLP_CERTIFICATE": "log_test.go"})()
	got := line(t, &out)
	text, _ := got["error"].(string)
	if got["severity"] != "WARNING" || !strings.Contains(text, "cert") {
		t.Errorf("the log has %v, want a warning of the certificate", got)
	}
}
