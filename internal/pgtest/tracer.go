package pgtest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Trip has the statements that a pool sends together: those of a batch, or one alone.
type Trip []Sent

// Sent is a statement with its arguments.
type Sent struct {
	SQL  string
	Args []any
}

// Contains reports whether one of the statements contains text.
func (t Trip) Contains(text string) bool {
	return slices.ContainsFunc(t, func(s Sent) bool { return strings.Contains(s.SQL, text) })
}

// Tracer is a tracer of pgx that calls a function before each trip of a pool, and one after its answer. Both may be nil.
type Tracer struct {
	Before func(ctx context.Context, conn *pgx.Conn, trip Trip)
	After  func(trip Trip, err error)
}

type tripKey struct{}

func (t *Tracer) start(ctx context.Context, conn *pgx.Conn, trip Trip) context.Context {
	if t.Before != nil {
		t.Before(ctx, conn, trip)
	}
	return context.WithValue(ctx, tripKey{}, trip)
}

func (t *Tracer) end(ctx context.Context, err error) {
	if trip, ok := ctx.Value(tripKey{}).(Trip); ok && t.After != nil {
		t.After(trip, err)
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *Tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return t.start(ctx, conn, Trip{{q.SQL, q.Args}})
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *Tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	t.end(ctx, q.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (t *Tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	trip := make(Trip, 0, b.Batch.Len())
	for _, q := range b.Batch.QueuedQueries {
		trip = append(trip, Sent{q.SQL, q.Arguments})
	}
	return t.start(ctx, conn, trip)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*Tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (t *Tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchEndData) {
	t.end(ctx, b.Err)
}

// Standstill returns a tracer that stops a process once, after the answer to a trip that contains text. The process
// closes stopped, and goes on when goOn closes.
func Standstill(text string, goOn <-chan struct{}) (tracer *Tracer, stopped <-chan struct{}) {
	began := make(chan struct{})
	stop := sync.OnceFunc(func() {
		close(began)
		<-goOn
	})
	return &Tracer{After: func(trip Trip, err error) {
		if err == nil && trip.Contains(text) {
			stop()
		}
	}}, began
}
