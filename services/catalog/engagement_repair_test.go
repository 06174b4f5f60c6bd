package catalog

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/txn"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
)

// Repairs of both projections wait for locked rows. Together they leave a connection of their pool
// to the consumer.
func TestRepairsOfEngagementsLeaveAConnection(t *testing.T) {
	t.Parallel()
	f, id, l := setUp(t), newVideoID(), newLike()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"), l.put(1))
	f.peer.has(ownersVideo(id, 3, "third"))
	f.peer.hasLike(l.owners(3))
	fix := pgtest.Begin(t, f.admin)
	defer func() { _ = fix.Rollback(context.WithoutCancel(t.Context())) }()
	for _, table := range []string{videoTable, engagementTable} {
		pgtest.Exec(t, fix, `SELECT FROM catalog.`+table+` FOR UPDATE`)
	}
	cfg := f.pool.Config()
	cfg.MaxConns = 2
	pool := pgtest.Open(t, cfg)
	repairer := NewProjector(pool, f.owner, f.waiters, quiet()).Handler()
	results := make(chan error, 2)
	for _, e := range []eventing.Event{titled(id, 3, "third"), l.put(3)} {
		go func() { results <- repairer.Repair(t.Context(), e) }()
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	most := int32(0)
	for left := 2; left > 0; {
		select {
		case err := <-results:
			left--
			if !errors.Is(err, txn.ErrLocked) {
				t.Errorf("a repair of a locked row: %v", err)
			}
		case <-tick.C:
			most = max(most, pool.Stat().AcquiredConns())
		}
	}
	if most != 1 {
		t.Errorf("the repairs have held %d of 2 connections at once, want 1", most)
	}
}

func TestRepairOfAnEngagementIDThatIsNotTheOwners(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.peer.hasLike(l.owners(6))
	f.refusesToRepair(t, l.put(4))
}

// The owner is asked for one user. It would not know the rows of another one, and a repair would take these for lost.
func TestEngagementsOfSeveralUsersAreNotFetchedTogether(t *testing.T) {
	t.Parallel()
	f, one, other := setUp(t), newLike(), newLike()
	f.peer.hasLike(one.owners(1))
	f.peer.hasLike(other.owners(1))
	found, _, _, err := engagements{owner: replicationv1.NewReplicationServiceClient(f.owner)}.Fetch(t.Context(), []string{one.id(), other.id()}, time.Minute)
	if err == nil {
		t.Errorf("%d of 2 rows are found, want an error", len(found))
	}
}
