package localpubsub

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	names, next, err := s.snapshots.page(req.GetProject(), req)
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
	if err := found.update(req); err != nil {
		return nil, err
	}
	return found.describe(), nil
}

func (s *snapshot) update(req *pubsubpb.UpdateSnapshotRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return resource.Missing(s.name)
	}
	config := proto.CloneOf(s.config)
	if err := resource.ApplyMask(config, req.GetSnapshot(), req.GetUpdateMask(), resource.SnapshotFields); err != nil {
		return err
	}
	if err := resource.CheckLabels(config.GetLabels()); err != nil {
		return err
	}
	if resource.MaskNames(req.GetUpdateMask(), "expire_time") {
		if err := s.checkExpiry(config.GetExpireTime()); err != nil {
			return err
		}
		s.alarm.set(config.GetExpireTime().AsTime())
	}
	s.config = config
	return nil
}

// checkExpiry checks a new time of expiry. The page of snapshots says that a snapshot expires within 7 days of
// its creation. It does not say which times an update may set, so these are the same 7 days.
func (s *snapshot) checkExpiry(at *timestamppb.Timestamp) error {
	if err := at.CheckValid(); err != nil {
		return resource.Invalid("expire_time", "%v", err)
	}
	if !at.AsTime().After(s.server.now()) {
		return resource.Invalid("expire_time", "%s is not in the future", at.AsTime().Format(time.RFC3339Nano))
	}
	if latest := s.created.Add(snapshotLife); at.AsTime().After(latest) {
		return resource.Invalid("expire_time", "a snapshot lives for at most 7 days, this one until %s", latest.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// DeleteSnapshot deletes a snapshot and releases its messages.
func (s subscriber) DeleteSnapshot(_ context.Context, req *pubsubpb.DeleteSnapshotRequest) (*emptypb.Empty, error) {
	found, err := s.snapshot(req.GetSnapshot())
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.deleteSnapshot(found)
}

func (s *Server) deleteSnapshot(found *snapshot) error {
	if !s.snapshots.remove(found.name, found) {
		return resource.Missing(found.name)
	}
	s.policies.Remove(found.name)
	found.end()
	return nil
}
