package video

import (
	"context"

	"example.com/lockstep/internal/problem"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	"example.com/lockstep/services/video/aggregate"
	"example.com/lockstep/services/video/engagement"
)

// engagementType is the aggregate type of package engagement.
const engagementType = "engagement"

func (s replicationServer) GetEngagementRows(
	ctx context.Context, req *replicationv1.GetEngagementRowsRequest,
) (*replicationv1.GetEngagementRowsResponse, error) {
	var bad problem.Violations
	user := bad.UUID("user_id", req.GetUserId())
	if err := bad.Err(); err != nil {
		return nil, err
	}
	found, state, err := s.owner.engagements.GetMany(ctx, user, req.GetVideoIds())
	if err != nil {
		return nil, err
	}
	return &replicationv1.GetEngagementRowsResponse{
		Engagements: engagement.Messages(found), AsOf: aggregate.Timestamp(state.Time), Epoch: state.Epoch,
	}, nil
}

func (s replicationServer) ListEngagementRows(
	ctx context.Context, req *replicationv1.ListEngagementRowsRequest,
) (*replicationv1.ListEngagementRowsResponse, error) {
	leave, err := s.await(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	page, err := engagement.ListRows(ctx, s.owner.comparable[engagementType], req.GetFrom())
	if err != nil {
		return nil, incomparable(err)
	}
	return &replicationv1.ListEngagementRowsResponse{
		Engagements: engagement.Messages(page.Rows), Next: page.Next, AsOf: asOf(page.Answer), EstimatedRows: page.Estimate,
	}, nil
}
