// Package video owns videos, users' engagements with them, and the other aggregates of the
// service: it alone creates, changes and deletes them, and publishes each change as an event.
//
// A write is one transaction, in [Service.Create], [Service.Update] and
// [Service.Delete]: the row, its event in the outbox and, where the caller sent one, the
// idempotency key commit together or not at all. The lock assigns the version, so
// versions are in commit order, and each has exactly one event. A deletion leaves the row
// as a tombstone without its content: its version never restarts, and a consumer that missed
// the event can still learn of it.
//
// This file has the transactions; fields.go the fields of a video, one after the other,
// and rules.go their use; read.go the reads, store.go all SQL, events.go the events,
// rest.go and grpc.go the protocols for users, replication.go and replication_digests.go
// the one for replicas, access.go the rules of who may call what, erase.go and store_erase.go the
// erasure of a user, canary.go the synthetic video, serve.go the wiring. Each other aggregate has a package of its own
// with the same files, the first one is engagement; package aggregate has the parts that all
// share. internal/idempotency keeps the keys.
package video

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/services/video/aggregate"
)

// Service is the one writer of videos. Any number may run on one database.
type Service struct {
	db     *pgxpool.Pool
	writer *aggregate.Writer
}

// NewService returns a service on the schema that db's search_path finds.
func NewService(db *pgxpool.Pool, writer *aggregate.Writer) *Service {
	return &Service{db: db, writer: writer}
}

// Create stores v, and assigns its ID, version and times. The uploader is a user that the
// caller may act for. found are the violations that
// the caller has found in the request; they are reported together with those of the rules.
//
// BEGIN, video, event, key and COMMIT take one round trip (TestRoundTrips).
func (s *Service) Create(
	ctx context.Context, v Video, o aggregate.WriteOptions, found problem.Violations,
) (aggregate.Result[Video], error) {
	found.Merge(v.violations(creation))
	request, err := idempotency.NewRequest(o.Caller.Scope(), "POST /v1/videos", o.Keys, aggregate.Given(v.values(creation)), found)
	if err == nil {
		err = aggregate.CheckOwner(o.Caller, v.UploaderID)
	}
	if err != nil {
		return aggregate.Result[Video]{}, err
	}
	// It may have to wait only for concurrent duplicates of this request.
	return aggregate.Write(ctx, s.writer, o.Caller, request.Name(), request, func(ctx context.Context, tx *aggregate.Tx) (Video, error) {
		v.ID, v.Revision = aggregate.NewID(), aggregate.Revision{TenantID: tx.Tenant, Epoch: tx.Epoch}.Next()
		event, err := createdEvent(ctx, v)
		if err != nil {
			return Video{}, err
		}
		if err := tx.Remember(v); err != nil { // first: a concurrent duplicate of this request waits here
			return Video{}, err
		}
		insertVideo(tx, v)
		return v, tx.Append(ctx, event)
	})
}

// Update sets the named fields of a video to their values in to. If they have these
// values already, it makes no version and no event and returns the video unchanged. The
// caller may act for the uploader. found is as for Create.
//
// The transaction makes two round trips (TestRoundTrips): the first begins, locks and
// reads the row, and finds the answer to an earlier request with the key; the second
// writes row, key and event, and commits.
func (s *Service) Update(
	ctx context.Context, id uuid.UUID, names []string, to Video, o aggregate.WriteOptions, found problem.Violations,
) (aggregate.Result[Video], error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	found.Merge(to.violations(names))
	request, err := idempotency.NewRequest(o.Caller.Scope(), "PATCH /v1/videos/"+id.String(), o.Keys, to.values(names), found)
	if err != nil {
		return aggregate.Result[Video]{}, err
	}
	return aggregate.Write(ctx, s.writer, o.Caller, id.String(), request, func(ctx context.Context, tx *aggregate.Tx) (Video, error) {
		v, err := lockVideo(ctx, tx, id)
		if err != nil {
			return Video{}, err
		}
		if err := v.checkWrite(o); err != nil {
			return Video{}, err
		}
		changed := v.set(names, to)
		if len(changed) == 0 {
			return v, tx.Store(ctx, v)
		}
		before := v.Revision
		v.Revision = before.Next()
		event, err := updatedEvent(ctx, v, before, changed)
		if err != nil {
			return Video{}, err
		}
		updateVideo(tx, v)
		return v, tx.Store(ctx, v, event)
	})
}

// Delete makes a video a tombstone, in the round trips of Update, for the callers of
// Update. A tombstone has ids, version and times, and nothing else. The reason, which may be
// empty, travels in the event. found is as for Create.
func (s *Service) Delete(
	ctx context.Context, id uuid.UUID, reason string, o aggregate.WriteOptions, found problem.Violations,
) (aggregate.Result[Video], error) {
	found.Line("reason", reason, 0, maxReason)
	sent := aggregate.Given(map[string]any{"reason": reason})
	request, err := idempotency.NewRequest(o.Caller.Scope(), "DELETE /v1/videos/"+id.String(), o.Keys, sent, found)
	if err != nil {
		return aggregate.Result[Video]{}, err
	}
	return aggregate.Write(ctx, s.writer, o.Caller, id.String(), request, func(ctx context.Context, tx *aggregate.Tx) (Video, error) {
		v, err := lockVideo(ctx, tx, id)
		if err != nil {
			return Video{}, err
		}
		if err := v.checkWrite(o); err != nil {
			return Video{}, err
		}
		before := v.Revision
		v = Video{ID: id, UploaderID: v.UploaderID, Revision: before.Tombstone()}
		event, err := deletedEvent(ctx, v, before, reason)
		if err != nil {
			return Video{}, err
		}
		updateVideo(tx, v)
		return v, tx.Store(ctx, v, event)
	})
}

// checkWrite returns an error unless the caller may change v, which is locked. That there
// is no such video, or that it was deleted, is said to every caller, as reads say it; the
// version to those only that may change it.
func (v Video) checkWrite(o aggregate.WriteOptions) error {
	if err := v.Check(aggregateType, 0); err != nil {
		return err
	}
	if err := aggregate.CheckOwner(o.Caller, v.UploaderID); err != nil {
		return err
	}
	return v.CheckVersion(aggregateType, o.IfVersion)
}

const aggregateType = "video"

// position is v's position for consistency tokens and events.
func (v Video) position() consistency.Position { return v.Position(aggregateType, v.ID.String()) }

// Token is the consistency token of v at its version.
func (v Video) Token() string { return v.Revision.Token(v.position()) }
