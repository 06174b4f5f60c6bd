package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/reconcile"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
)

const (
	// digestTimeout bounds one call to the owner. It is longer than the owner's own limit, because the
	// owner's error says more than a timeout.
	digestTimeout = 15 * time.Second
	// digestAttempts is the most calls that digest makes. It is enough for the restart of an instance
	// of the owner.
	digestAttempts = 5
)

var digestPause = backoff.Policy{Base: 500 * time.Millisecond, Cap: 5 * time.Second}

// ownersRows is the reconcile.Owner of one type of aggregate in the video service.
type ownersRows struct {
	owner         replicationv1.ReplicationServiceClient
	aggregateType string
}

// Part calls the owner's DigestRows.
func (o ownersRows) Part(ctx context.Context, d reconcile.Definition, from string) (p reconcile.Part, err error) {
	resp, err := digest(ctx, o.owner.DigestRows, &replicationv1.DigestRowsRequest{Definition: o.definition(d), From: from})
	if err != nil {
		return p, err
	}
	p = reconcile.Part{Answer: reconcile.Answer{AsOf: asOf(resp), Epoch: resp.GetEpoch()}, Until: resp.GetUntil()}
	for _, leaf := range resp.GetRanges() {
		p.Leaves = append(p.Leaves, reconcile.Leaf{From: leaf.GetFrom(), Rows: leaf.GetRows(), Digest: leaf.GetDigest()})
	}
	return p, nil
}

// Page calls the owner's ListRowDigests.
func (o ownersRows) Page(ctx context.Context, d reconcile.Definition, r reconcile.Range) (p reconcile.Page, err error) {
	resp, err := digest(ctx, o.owner.ListRowDigests,
		&replicationv1.ListRowDigestsRequest{Definition: o.definition(d), From: r.From, Until: r.Until})
	if err != nil {
		return p, err
	}
	p = reconcile.Page{Answer: reconcile.Answer{AsOf: asOf(resp), Epoch: resp.GetEpoch()}, Until: resp.GetUntil()}
	for _, row := range resp.GetRows() {
		last, err := lastEvent(row.GetLastEventId())
		if err != nil {
			return p, err
		}
		p.Rows = append(p.Rows, reconcile.Row{
			ID: row.GetId(), Version: row.GetVersion(), Epoch: p.Epoch, EventID: last.UUID, At: row.GetUpdatedAt().AsTime(), Digest: row.GetDigest(),
		})
	}
	return p, nil
}

func (o ownersRows) definition(d reconcile.Definition) *replicationv1.Definition {
	return &replicationv1.Definition{AggregateType: o.aggregateType, Encoding: d.Encoding, Fields: d.Fields}
}

// digest calls the owner until it answers, up to digestAttempts times. It tries again only if the
// owner is unavailable.
func digest[Q, A any](
	ctx context.Context, call func(context.Context, *Q, ...grpc.CallOption) (*A, error), request *Q,
) (answer *A, err error) {
	for attempt := range digestPause.Attempts(ctx) {
		answer, err = projection.Call(ctx, digestTimeout, call, request)
		said, _ := errors.AsType[interface {
			error
			GRPCStatus() *status.Status
		}](err)
		switch {
		case err == nil:
			return answer, nil
		case problem.ReasonOf(err) == reconcile.ReasonIncomparable:
			return nil, fmt.Errorf("%w: the owner says: %s", reconcile.ErrDefinition, said.GRPCStatus().Message())
		case status.Code(err) == codes.Unimplemented:
			return nil, fmt.Errorf("%w: the owner's does not make digests", reconcile.ErrDefinition)
		case attempt == digestAttempts || !errors.Is(err, consistency.ErrOwnerUnavailable):
			return nil, err
		}
	}
	return nil, err
}
