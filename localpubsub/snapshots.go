package localpubsub

import (
	"context"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// CreateSnapshot makes a snapshot of a subscription's backlog. If the request has no name, the
// snapshot gets a random name in the project of the subscription.
func (s subscriber) CreateSnapshot(_ context.Context, req *pubsubpb.CreateSnapshotRequest) (*pubsubpb.Snapshot, error) {
	found, err := s.subscription(req.GetSubscription())
	if err != nil {
		return nil, err
	}
	name := req.GetName()
	if name == "" {
		name = resource.RandomName(found.name, "snapshots")
	}
	if err := resource.CheckName(name, "snapshots", "name"); err != nil {
		return nil, err
	}
	if err := resource.CheckLabels(req.GetLabels()); err != nil {
		return nil, err
	}
	taken, err := found.capture(name, req.GetLabels())
	if err != nil {
		return nil, err
	}
	return taken.describe(), nil
}

// GetSnapshot returns a snapshot. It returns NOT_FOUND if the snapshot is unknown or expired.
func (s subscriber) GetSnapshot(_ context.Context, req *pubsubpb.GetSnapshotRequest) (*pubsubpb.Snapshot, error) {
	found, err := s.snapshot(req.GetSnapshot())
	if err != nil {
		return nil, err
	}
	return found.describe(), nil
}

// ListSnapshots returns a project's snapshots in the order of their names.
func (s subscriber) ListSnapshots(_ context.Context, req *pubsubpb.ListSnapshotsRequest) (*pubsubpb.ListSnapshotsResponse, error) {
	names, next, err := resource.Page(s.snapshots.names(req.GetProject()), req)
	if err != nil {
		return nil, err
	}
	answer := &pubsubpb.ListSnapshotsResponse{NextPageToken: next}
	for _, name := range names {
		if found, err := s.snapshot(name); err == nil {
			answer.Snapshots = append(answer.Snapshots, found.describe())
		}
	}
	return answer, nil
}

// UpdateSnapshot changes the labels and the time of expiry.
func (s subscriber) UpdateSnapshot(_ context.Context, req *pubsubpb.UpdateSnapshotRequest) (*pubsubpb.Snapshot, error) {
	found, err := s.snapshot(req.GetSnapshot().GetName())
	if err != nil {
		return nil, err
	}
	config := found.describe()
	if err := resource.ApplyMask(config, req.GetSnapshot(), req.GetUpdateMask(), resource.SnapshotFields); err != nil {
		return nil, err
	}
	if err := resource.CheckLabels(config.GetLabels()); err != nil {
		return nil, err
	}
	if err := config.GetExpireTime().CheckValid(); err != nil {
		return nil, resource.Invalid("expire_time", "%v", err)
	}
	found.mu.Lock()
	found.config = proto.CloneOf(config)
	found.alarm.set(config.GetExpireTime().AsTime())
	found.mu.Unlock()
	return found.describe(), nil
}

// DeleteSnapshot deletes a snapshot and releases its messages.
func (s subscriber) DeleteSnapshot(_ context.Context, req *pubsubpb.DeleteSnapshotRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, s.deleteSnapshot(req.GetSnapshot())
}

func (s *Server) deleteSnapshot(name string) error {
	found, err := s.snapshot(name)
	if err != nil {
		return err
	}
	if !s.snapshots.remove(name) {
		return resource.Missing(name)
	}
	s.policies.Remove(name)
	found.end()
	return nil
}
