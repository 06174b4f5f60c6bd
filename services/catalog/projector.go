package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

const (
	// repairTimeout is longer than a reader's: nobody waits for a repair.
	repairTimeout = 5 * time.Second
	// writeTimeout bounds a repair's transaction, waits for locks included.
	writeTimeout = 5 * time.Second
	// maxDecisions: a row that appeared between look and write is there at the
	// second look, and locked. One more is margin.
	maxDecisions = 3
)

// Projector brings the projection in db forward: event by event, and from the
// owner where events are missing. After its own commits it wakes the waiters;
// after events that is up to the consumer, who commits those.
type Projector struct {
	db      *pgxpool.Pool
	owner   Owner
	waiters *consistency.Waiters
}

// NewProjector returns the projector of db's projection, with the owner of videos
// at the other end of the connection and those who wait for the projection.
func NewProjector(db *pgxpool.Pool, owner *grpc.ClientConn, waiters *consistency.Waiters) *Projector {
	return &Projector{db: db, owner: Owner{videov1.NewVideoServiceClient(owner)}, waiters: waiters}
}

// Handler is what is done with events, as they arrive or when an operator
// redrives them.
func (p *Projector) Handler() inbox.Handler {
	return inbox.Handler{Apply: p.Apply, Repair: p.Repair, Committed: p.waiters.Notify}
}

// Apply brings the projection forward by e within tx, or says why it did not. An
// event that contradicts its schema or its attributes is a permanent error.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, e eventing.Event) (inbox.Outcome, error) {
	c, err := decode(e)
	if err != nil {
		return 0, eventing.Permanent(fmt.Errorf("decode event: %w", err))
	}
	return project(ctx, tx, c)
}

// Repair brings e's video to e's version or beyond, from what its owner has. An
// owner that does not know the video is a permanent error; one that is behind
// its own event is not, since it may have answered from a replica.
func (p *Projector) Repair(ctx context.Context, e eventing.Event) error {
	c, err := decode(e)
	if err != nil {
		return eventing.Permanent(fmt.Errorf("decode event: %w", err))
	}
	v, err := p.pull(ctx, c.video, repairTimeout)
	switch {
	case errors.Is(err, errOwnerLacks):
		return eventing.Permanent(err)
	case err != nil:
		return err
	case c.newerThan(v):
		return fmt.Errorf("owner has version %d of video %s, its event has %d", v.Version, v.ID, c.version)
	}
	return nil
}

// pull brings the projection to what the owner has, in a transaction of its own,
// and returns that. The owner is asked before, so that a slow one holds no lock.
func (p *Projector) pull(ctx context.Context, id uuid.UUID, timeout time.Duration) (Video, error) {
	v, err := p.owner.get(ctx, id, timeout)
	if err != nil {
		return Video{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var outcome inbox.Outcome
	err = pgx.BeginFunc(ctx, p.db, func(tx pgx.Tx) error {
		outcome, err = project(ctx, tx, snapshot(v))
		return err
	})
	switch {
	case err != nil:
		return Video{}, fmt.Errorf("take over the owner's state: %w", err)
	case outcome == inbox.Gap:
		return Video{}, eventing.Permanent(fmt.Errorf("owner has version %d of video %s, which it had deleted", v.Version, id))
	case outcome == inbox.Applied:
		p.waiters.Notify(videoKey(id))
	}
	return v, nil
}

// project writes c where decide lets it. The row stays locked from the look to
// the end of tx. An absent row cannot be locked: the write then insists on its
// absence, and the decision is taken again if one has appeared.
func project(ctx context.Context, tx pgx.Tx, c change) (inbox.Outcome, error) {
	for range maxDecisions {
		stored, err := lockVideo(ctx, tx, c.video)
		if err != nil {
			return 0, err
		}
		if outcome := decide(stored, c); outcome != inbox.Applied {
			return outcome, nil
		}
		written, err := writeVideo(ctx, tx, stored, c.onto(stored))
		if err != nil || written {
			return inbox.Applied, err
		}
	}
	return 0, fmt.Errorf("video %s changed %d times between look and write", c.video, maxDecisions)
}

// decide is the rule by which the projection moves. Positions compare by (epoch,
// version).
//
//	change              on                               outcome
//	any                 its own position or beyond       Stale    seen, or overtaken
//	deleted             anything older                   Applied  needs nothing of what it skips
//	owner's state       anything older                   Applied  carries everything
//	  but alive         a tombstone of the same epoch    Gap      a deletion is final
//	created, version 1  nothing                          Applied
//	updated             its direct predecessor, alive    Applied
//	any other           anything older                   Gap      only the owner can tell
func decide(stored Video, c change) inbox.Outcome {
	nothing, alive := stored.Version == 0, stored.Version > 0 && stored.DeletedAt == nil
	var applies bool
	switch p := c.payload.(type) {
	case *eventsv1.VideoDeleted:
		applies = true
	case Video:
		applies = p.DeletedAt != nil || nothing || alive || c.epoch > stored.Epoch
	case *eventsv1.VideoCreated:
		applies = nothing && c.version == 1
	case *eventsv1.VideoUpdated:
		applies = alive && c.epoch == stored.Epoch && c.version == stored.Version+1
	}
	switch {
	case !c.newerThan(stored):
		return inbox.Stale
	case applies:
		return inbox.Applied
	}
	return inbox.Gap
}
