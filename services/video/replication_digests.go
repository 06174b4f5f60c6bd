package video

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/reconcile"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
)

func (s replicationServer) DigestRows(
	ctx context.Context, req *replicationv1.DigestRowsRequest,
) (*replicationv1.DigestRowsResponse, error) {
	table, leave, err := s.enter(ctx, req.GetDefinition())
	if err != nil {
		return nil, err
	}
	defer leave()
	part, err := table.Part(ctx, definition(req.GetDefinition()), req.GetFrom())
	if err != nil {
		return nil, incomparable(err)
	}
	resp := &replicationv1.DigestRowsResponse{Until: part.Until, AsOf: asOf(part.Answer), Epoch: part.Epoch}
	for _, leaf := range part.Leaves {
		resp.Ranges = append(resp.Ranges, &replicationv1.RangeDigest{From: leaf.From, Rows: leaf.Rows, Digest: leaf.Digest})
	}
	return resp, nil
}

func (s replicationServer) ListRowDigests(
	ctx context.Context, req *replicationv1.ListRowDigestsRequest,
) (*replicationv1.ListRowDigestsResponse, error) {
	table, leave, err := s.enter(ctx, req.GetDefinition())
	if err != nil {
		return nil, err
	}
	defer leave()
	page, err := table.Page(ctx, definition(req.GetDefinition()), reconcile.Range{From: req.GetFrom(), Until: req.GetUntil()})
	if err != nil {
		return nil, incomparable(err)
	}
	resp := &replicationv1.ListRowDigestsResponse{Until: page.Until, AsOf: asOf(page.Answer), Epoch: page.Epoch}
	for _, row := range page.Rows {
		digest := &replicationv1.RowDigest{Id: row.ID, Version: row.Version, UpdatedAt: timestamppb.New(row.At), Digest: row.Digest}
		if row.EventID != uuid.Nil {
			digest.LastEventId = row.EventID.String()
		}
		resp.Rows = append(resp.Rows, digest)
	}
	return resp, nil
}

// enter returns the table that d names, after it has waited for the request's turn, as await does. If enter
// returns no error, the function that called it must call leave, which ends the turn.
func (s replicationServer) enter(
	ctx context.Context, d *replicationv1.Definition,
) (table *reconcile.Table, leave func(), err error) {
	table, known := s.owner.comparable[d.GetAggregateType()]
	if !known {
		return nil, nil, incomparable(fmt.Errorf("%w: no aggregate type %.100q", reconcile.ErrDefinition, d.GetAggregateType()))
	}
	leave, err = s.await(ctx)
	return table, leave, err
}

func definition(d *replicationv1.Definition) reconcile.Definition {
	return reconcile.Definition{Encoding: d.GetEncoding(), Fields: d.GetFields()}
}

// incomparable returns the error that the client gets for err. If the request has caused err, this is a
// problem with the text of err, which the client sees. Otherwise it is err itself.
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
