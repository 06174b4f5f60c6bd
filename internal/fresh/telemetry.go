package fresh

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/circuit"
)

// metrics are the instruments of calls to the owner; the instruments of reads are in
// package consistency.
type metrics struct{ questions metric.Int64Counter }

// newMetrics leaves errors to OpenTelemetry's handler: its instruments can be used in
// any case; after an error they do nothing.
func newMetrics() (m metrics) {
	var err error
	m.questions, err = otel.Meter("example.com/lockstep/internal/fresh").Int64Counter("consistency.questions",
		metric.WithUnit("{question}"),
		metric.WithDescription("Readers' questions to the owner, by result: answered, away, or refused by the circuit"))
	if err != nil {
		otel.Handle(err)
	}
	return m
}

// answerOf is the result of a call that ended with err.
func answerOf(err error, away bool) string {
	switch {
	case errors.Is(err, circuit.ErrOpen):
		return "refused"
	case away:
		return "away"
	}
	return "answered" // also with an error that is the reader's own
}

func (m metrics) asked(ctx context.Context, result string) {
	m.questions.Add(ctx, 1, metric.WithAttributes(attribute.String("result", result)))
}
