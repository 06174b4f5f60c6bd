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
	videov1 "example.com/lockstep/proto/video/v1"
)

const (
	// repairTimeout is longer than a reader's: nobody waits for a repair.
	repairTimeout = 5 * time.Second
	// writeTimeout bounds a repair's transaction, waits for locks included.
	writeTimeout = 5 * time.Second
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
	return inbox.Handler{Decode: decode, Apply: rows.Apply, Repair: p.Repair, Committed: p.waiters.Notify}
}

// rows is the projection as package inbox moves it.
var rows = inbox.Rows[Video]{
	Lock: lockVideos, Onto: onto, Write: writeVideos,
	Position: func(v Video) inbox.Position {
		return inbox.Position{Epoch: v.Epoch, Version: v.Version, Deleted: v.DeletedAt != nil}
	},
}

// Repair brings e's video to e's version or beyond, from what its owner has. An
// owner that does not know the video is a permanent error; one that is behind
// its own event is not, since it may have answered from a replica.
func (p *Projector) Repair(ctx context.Context, e eventing.Event) error {
	id, err := parseID(e.AggregateID)
	if err != nil {
		return eventing.Permanent(fmt.Errorf("aggregate_id: %w", err))
	}
	v, err := p.pull(ctx, id, repairTimeout)
	switch {
	case errors.Is(err, errOwnerLacks):
		return eventing.Permanent(err)
	case err != nil:
		return err
	case v.Epoch < e.Epoch || v.Epoch == e.Epoch && v.Version < e.Version:
		return fmt.Errorf("owner has version %d of video %s, its event has %d", v.Version, v.ID, e.Version)
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
	var outcomes []inbox.Outcome
	err = pgx.BeginFunc(ctx, p.db, func(tx pgx.Tx) error {
		outcomes, err = rows.Apply(ctx, tx, []inbox.Change{snapshot(v)})
		return err
	})
	switch {
	case err != nil:
		return Video{}, fmt.Errorf("take over the owner's state: %w", err)
	case outcomes[0] == inbox.Gap:
		return Video{}, eventing.Permanent(fmt.Errorf("owner has version %d of video %s, which it had deleted", v.Version, id))
	case outcomes[0] == inbox.Applied:
		p.waiters.Notify(videoKey(id))
	}
	return v, nil
}
