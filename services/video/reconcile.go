package video

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/reconcile"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/engagement"
)

// turnWait is long for the rows of another caller, which take some tens of milliseconds.
const turnWait = 2 * time.Second

// engagementType is the aggregate type of package engagement.
const engagementType = "engagement"

// reconcileServer is the ReconcileService of proto/video/v1.
type reconcileServer struct {
	videov1.UnimplementedReconcileServiceServer
	// tables are the owner's, by aggregate type.
	tables map[string]*reconcile.Table
	// turn is taken by the one caller whose digests are computed, or whose rows are listed:
	// a check or a backfill must not hold more than one of the connections that requests
	// share.
	turn chan struct{}
}

func registerReconcile(r grpc.ServiceRegistrar, tables map[string]*reconcile.Table) {
	videov1.RegisterReconcileServiceServer(r, reconcileServer{tables: tables, turn: make(chan struct{}, 1)})
}

func (s reconcileServer) DigestRows(ctx context.Context, req *videov1.DigestRowsRequest) (*videov1.DigestRowsResponse, error) {
	table, leave, err := s.enter(ctx, req.GetDefinition())
	if err != nil {
		return nil, err
	}
	defer leave()
	part, err := table.Part(ctx, definition(req.GetDefinition()), req.GetFrom())
	if err != nil {
		return nil, incomparable(err)
	}
	resp := &videov1.DigestRowsResponse{Until: part.Until, AsOf: asOf(part.Answer), Epoch: part.Epoch}
	for _, leaf := range part.Leaves {
		resp.Ranges = append(resp.Ranges, &videov1.RangeDigest{From: leaf.From, Rows: leaf.Rows, Digest: leaf.Digest})
	}
	return resp, nil
}

func (s reconcileServer) ListRowDigests(
	ctx context.Context, req *videov1.ListRowDigestsRequest,
) (*videov1.ListRowDigestsResponse, error) {
	table, leave, err := s.enter(ctx, req.GetDefinition())
	if err != nil {
		return nil, err
	}
	defer leave()
	page, err := table.Page(ctx, definition(req.GetDefinition()), reconcile.Range{From: req.GetFrom(), Until: req.GetUntil()})
	if err != nil {
		return nil, incomparable(err)
	}
	resp := &videov1.ListRowDigestsResponse{Until: page.Until, AsOf: asOf(page.Answer), Epoch: page.Epoch}
	for _, row := range page.Rows {
		digest := &videov1.RowDigest{Id: row.ID, Version: row.Version, UpdatedAt: timestamppb.New(row.At), Digest: row.Digest}
		if row.EventID != uuid.Nil {
			digest.LastEventId = row.EventID.String()
		}
		resp.Rows = append(resp.Rows, digest)
	}
	return resp, nil
}

func (s reconcileServer) ListVideoRows(ctx context.Context, req *videov1.ListVideoRowsRequest) (*videov1.ListVideoRowsResponse, error) {
	leave, err := s.await(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	page, err := reconcile.List(ctx, s.tables[aggregateType], selected, req.GetFrom(), func(v Video) string { return v.ID.String() })
	if err != nil {
		return nil, incomparable(err)
	}
	resp := &videov1.ListVideoRowsResponse{Next: page.Next, AsOf: asOf(page.Answer), EstimatedRows: page.Estimate}
	for _, v := range page.Rows {
		resp.Videos = append(resp.Videos, v.read())
	}
	return resp, nil
}

func (s reconcileServer) ListEngagementRows(
	ctx context.Context, req *videov1.ListEngagementRowsRequest,
) (*videov1.ListEngagementRowsResponse, error) {
	leave, err := s.await(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	page, err := engagement.ListRows(ctx, s.tables[engagementType], req.GetFrom())
	if err != nil {
		return nil, incomparable(err)
	}
	return &videov1.ListEngagementRowsResponse{
		Engagements: page.Rows, Next: page.Next, AsOf: asOf(page.Answer), EstimatedRows: page.Estimate,
	}, nil
}

// enter returns the table of a request when it is the caller's turn. The caller calls leave.
func (s reconcileServer) enter(ctx context.Context, d *videov1.Definition) (table *reconcile.Table, leave func(), err error) {
	table, known := s.tables[d.GetAggregateType()]
	if !known {
		return nil, nil, incomparable(fmt.Errorf("%w: no aggregate type %.100q", reconcile.ErrDefinition, d.GetAggregateType()))
	}
	leave, err = s.await(ctx)
	return table, leave, err
}

// await returns when it is the caller's turn. The caller calls leave. One that has to wait for
// long is asked to come again: callers that have gone must not be served first.
func (s reconcileServer) await(ctx context.Context) (leave func(), err error) {
	long := time.NewTimer(turnWait)
	defer long.Stop()
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-long.C:
		busy := problem.New(problem.CodeTooMany, "", "Another caller's rows are read at the moment.")
		busy.RetryAfter = turnWait
		return nil, busy
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func definition(d *videov1.Definition) reconcile.Definition {
	return reconcile.Definition{Encoding: d.GetEncoding(), Fields: d.GetFields()}
}

// incomparable makes faults of the request known to the caller.
func incomparable(err error) error {
	switch {
	case errors.Is(err, reconcile.ErrDefinition):
		p := problem.Invalid("definition", err.Error())
		p.Reason = reconcile.ReasonIncomparable
		return p
	case errors.Is(err, reconcile.ErrID):
		return problem.Invalid("from, until", err.Error())
	}
	return err
}

// asOf is the time of an answer; an unknown time is an unset field.
func asOf(a reconcile.Answer) *timestamppb.Timestamp {
	if a.AsOf.IsZero() {
		return nil
	}
	return timestamppb.New(a.AsOf)
}
