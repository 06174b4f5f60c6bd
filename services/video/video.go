// Package video owns videos, users' engagements with them, and the other aggregates of the
// service. Only this service creates, changes and deletes them. It publishes each change as an event.
//
// A write is one transaction; see [Service.Create], [Service.Update] and [Service.Delete]. The row,
// its event in the outbox and, if the caller sent one, the idempotency key commit together or not
// at all. A write assigns the version while it holds the row's lock. So versions are in commit
// order, and each version has exactly one event. A deletion leaves the row as a tombstone without
// its content. So the version never restarts, and a consumer that missed the event can still learn
// of the deletion.
//
// This file has the transactions, which transaction.go of package aggregate runs. fields.go has the
// fields of a video and their rules. read.go has the reads, store.go
// the SQL, and events.go the events. rest.go and grpc.go are the protocols for users; replication.go
// and replication_digests.go are the protocol for replicas.
// access.go says who may call what. erase.go and store_erase.go have the erasure of a user, canary.go
// has the synthetic video, and serve.go the wiring. Each other aggregate has a package of its own
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

// Service is the only writer of videos. Any number of processes may run it on one database.
type Service struct {
	db     *pgxpool.Pool
	writer *aggregate.Writer
}

// NewService returns a service on the schema that db's search_path finds.
func NewService(db *pgxpool.Pool, writer *aggregate.Writer) *Service {
	return &Service{db: db, writer: writer}
}

// Create stores v, and assigns its ID, version and times. The caller must be allowed to act for the
// uploader. found are the violations that the protocol has found in the request. Create reports
// them together with the violations of the rules.
//
// The transaction makes one round trip (TestRoundTrips): BEGIN, the video, its event, the key, COMMIT.
func (s *Service) Create(
	ctx context.Context, v Video, o aggregate.WriteOptions, found problem.Violations,
) (aggregate.Result[Video], error) {
	found.Merge(v.violations(creation))
	found.Require(v.UploaderID != uuid.Nil, uploaderID, "is required, and must not be the nil UUID")
	request, err := idempotency.NewRequest(o.Caller.Scope(), "POST /v1/videos", o.Keys, aggregate.Given(v.values(creation)), found)
	if err == nil {
		err = aggregate.CheckOwner(o.Caller, v.UploaderID)
	}
	if err != nil {
		return aggregate.Result[Video]{}, err
	}
	// This write can only wait for the transaction of a concurrent duplicate of the request, or for a locked table.
	return aggregate.Write(ctx, s.writer, o.Caller, request.Name(), request, func(ctx context.Context, tx *aggregate.Tx) (Video, error) {
		v.ID, v.Revision = aggregate.NewID(), aggregate.Revision{TenantID: tx.Tenant, Epoch: tx.Epoch}.Next()
		event, err := createdEvent(ctx, v)
		if err != nil {
			return Video{}, err
		}
		if err := tx.Remember(v); err != nil { // first, so that a concurrent duplicate waits here
			return Video{}, err
		}
		insertVideo(tx, v)
		return v, tx.Append(ctx, event)
	})
}

// Update gives the named fields of a video the values that they have in the parameter to. If the
// fields have these values already, Update makes no version and no event, and returns the video
// unchanged. The caller must be allowed to act for the uploader. found is as for Create.
//
// The transaction makes two round trips (TestRoundTrips). The first begins, locks and reads the
// row, and reads the answer to an earlier request with the same key. The second writes the row, the
// key and the event, and commits.
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

// Delete turns a video into a tombstone, which has only ids, version and times. It makes the same
// round trips as Update and allows the same callers. The reason, which may be empty, is sent in the
// event. found is as for Create.
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

// checkWrite returns an error unless the caller may change v, which is locked. It first checks
// whether v exists, so every caller learns that v does not exist or was deleted, as in a read. It
// checks the version last, so only a caller that may change v learns of a wrong version.
func (v Video) checkWrite(o aggregate.WriteOptions) error {
	if err := v.Check(aggregateType); err != nil {
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
