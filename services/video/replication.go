package video

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/reconcile"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	"example.com/lockstep/services/video/aggregate"
)

// turnWait is the longest time that a caller waits for its turn (see replicationServer.turn). That is long
// compared with a turn, because one call for rows takes some tens of milliseconds.
const turnWait = 2 * time.Second

// replicationServer is the ReplicationService of proto/video/replication/v1. This file has the
// calls that return rows, and replication_digests.go has the calls that return digests of rows.
type replicationServer struct {
	replicationv1.UnimplementedReplicationServiceServer
	owner services
	// turn has one place. A call that lists or digests rows takes this place, and the next such call
	// waits for it. So checks and backfills together hold at most one of the connections that
	// requests share.
	turn chan struct{}
}

func newReplication(s services) replicationServer {
	return replicationServer{owner: s, turn: make(chan struct{}, 1)}
}

func registerReplication(r grpc.ServiceRegistrar, s services) {
	replicationv1.RegisterReplicationServiceServer(r, newReplication(s))
}

func (s replicationServer) GetVideoRows(
	ctx context.Context, req *replicationv1.GetVideoRowsRequest,
) (*replicationv1.GetVideoRowsResponse, error) {
	found, state, err := s.owner.videos.GetMany(ctx, req.GetVideoIds())
	if err != nil {
		return nil, err
	}
	return &replicationv1.GetVideoRowsResponse{
		Videos: messages(found), AsOf: aggregate.Timestamp(state.Time), Epoch: state.Epoch,
	}, nil
}

func (s replicationServer) ListVideoRows(
	ctx context.Context, req *replicationv1.ListVideoRowsRequest,
) (*replicationv1.ListVideoRowsResponse, error) {
	leave, err := s.await(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	page, err := reconcile.List(ctx, s.owner.comparable[aggregateType], selected, req.GetFrom(), func(v Video) string { return v.ID.String() })
	if err != nil {
		return nil, incomparable(err)
	}
	return &replicationv1.ListVideoRowsResponse{
		Videos: messages(page.Rows), Next: page.Next, AsOf: asOf(page.Answer), EstimatedRows: page.Estimate,
	}, nil
}

// await waits for the place in s.turn. If await returns no error, the function that called it must call
// leave, which gives the place back. If the place is not free within turnWait, await returns an error that
// asks the client to retry. So a client that has gone away soon stops waiting in front of the others.
func (s replicationServer) await(ctx context.Context) (leave func(), err error) {
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

// asOf returns the time of an answer. If the time is unknown, the field stays unset.
func asOf(a reconcile.Answer) *timestamppb.Timestamp {
	if a.AsOf.IsZero() {
		return nil
	}
	return timestamppb.New(a.AsOf)
}
