package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// Logger returns a logger that writes one JSON object per line. The lines have the shape of Cloud
// Logging's structured logs, with time, severity, message and service. A method that takes a
// context also writes the context's trace, and its span if the span is sampled. project is the
// Google Cloud project, and may be empty. Without a project, the console cannot link a line to its
// trace. If w does not take a line within a second, further lines are dropped until it has: see
// output. Do not log in a group that was opened with WithGroup, because the trace would land in the
// group as well. Use LogAttrs or key-value pairs.
func Logger(w io.Writer, level slog.Level, service, project string) *slog.Logger {
	prefix := ""
	if project != "" {
		prefix = "projects/" + project + "/traces/"
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: cloudNames}
	bounded := newOutput(w, slog.New(slog.NewJSONHandler(w, options)).With("service", service))
	return slog.New(traced{slog.NewJSONHandler(bounded, options), prefix}).With("service", service)
}

// cloudNames renames slog's own top-level attributes.
func cloudNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok {
			return slog.String("severity", severity(level))
		}
	case slog.MessageKey:
		a.Key = "message"
	}
	return a
}

// LogErrors makes OpenTelemetry report its errors, such as a collector that does not answer, to
// log at WARNING. It logs one line a minute at most. Without LogErrors OpenTelemetry writes to
// the standard error, in lines that are not JSON. The setting holds for the whole process.
func LogErrors(log *slog.Logger) {
	lines := rate.NewLimiter(rate.Every(time.Minute), 1)
	report := func(err error) {
		if lines.Allow() {
			log.Warn("telemetry is not sent, further errors of this minute are not logged", "error", err)
		}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(report))
	otel.SetLogger(logr.New(errorsOnly{report}))
}

// errorsOnly is the sink of the SDK's own log. It passes on errors, and drops what the SDK reports at lower levels. The
// values of an error are dropped, too, because they may be a header with a password.
type errorsOnly struct{ report func(error) }

func (errorsOnly) Init(logr.RuntimeInfo)            {}
func (errorsOnly) Enabled(int) bool                 { return false }
func (errorsOnly) Info(int, string, ...any)         {}
func (e errorsOnly) WithValues(...any) logr.LogSink { return e }
func (e errorsOnly) WithName(string) logr.LogSink   { return e }

func (e errorsOnly) Error(err error, message string, _ ...any) {
	e.report(fmt.Errorf("%s: %w", message, err))
}

func severity(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "ERROR"
	case level >= slog.LevelWarn:
		return "WARNING"
	case level >= slog.LevelInfo:
		return "INFO"
	}
	return "DEBUG"
}

// traced is a handler that adds to each line the trace in the line's context, and the span if it is
// sampled. No viewer of traces has a span that is not sampled.
type traced struct {
	slog.Handler
	tracePrefix string
}

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("logging.googleapis.com/trace", h.tracePrefix+span.TraceID().String()))
		if span.IsSampled() {
			r.AddAttrs(
				slog.String("logging.googleapis.com/spanId", span.SpanID().String()),
				slog.Bool("logging.googleapis.com/trace_sampled", true))
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traced{h.Handler.WithAttrs(attrs), h.tracePrefix}
}

func (h traced) WithGroup(name string) slog.Handler {
	return traced{h.Handler.WithGroup(name), h.tracePrefix}
}
