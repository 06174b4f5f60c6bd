package catalog

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
	"example.com/lockstep/pkg/eventing/operator/erasure"
	"example.com/lockstep/pkg/eventing/txn"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
)

// Types are the aggregate types of the read model.
var Types = []string{
	videoType,
	engagementType,
}

// ownerTimeout bounds one call to the owner.
const ownerTimeout = 10 * time.Second

// userCountTimeout is the time limit of a statement that counts a user's rows. The database cancels such a
// statement after 15 seconds. The longer userCountTimeout is for a database that does not answer.
const userCountTimeout = 30 * time.Second

// Erasure removes a user's data from the read model, except the data that the events of the owner's
// erasure remove.
type Erasure struct {
	videos  videos
	letters *deadletter.Batch
	// named are the videos with a dead letter whose message names the user.
	named map[string]bool
	// erased are the dead letters that Erase has removed.
	erased []deadletter.Letter
	erasure.Options
}

// NewErasure returns the erasure of a user in db. owner is a connection to the owner of videos,
// which knows the uploader of a deleted video.
func NewErasure(db *pgxpool.Pool, owner *grpc.ClientConn, letters *deadletter.Batch, o erasure.Options) *Erasure {
	e := &Erasure{
		videos: videos{db: db, owner: replicationv1.NewReplicationServiceClient(owner)}, letters: letters, named: map[string]bool{}, Options: o,
	}
	for _, l := range letters.Letters {
		kind, id := letters.Aggregate(l)
		data, _ := letters.Content(l)
		if video, invalid := parseID(id); invalid == nil && kind == videoType && bytes.Contains(data, []byte(o.User.String())) {
			e.named[video.String()] = true
		}
	}
	return e
}

// Owned returns the aggregates in ids that belong to the user. It asks the owner for the uploaders of videos.
// For a video that the owner has lost, Owned looks for the user's id in two other places: in dead letters,
// which may have the event that created the video, and in the audit table. The audit table may have that
// event, if an operator discarded it, or the row from before a repair. An id need not come from an event.
// Such an id may be any text, or have capital letters.
func (e *Erasure) Owned(ctx context.Context, aggregateType string, ids []string) (owned []string, err error) {
	if aggregateType == engagementType {
		return e.ownedEngagements(ids), nil
	}
	if aggregateType != videoType {
		return nil, nil
	}
	written := map[string][]string{}
	for _, id := range ids {
		if parsed, invalid := parseID(id); invalid == nil {
			written[parsed.String()] = append(written[parsed.String()], id)
		}
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(written)), consistency.MaxPositions) {
		theirs, err := e.ownedVideos(ctx, some, written)
		if err != nil {
			return nil, err
		}
		owned = append(owned, theirs...)
	}
	return owned, nil
}

// ownedVideos returns the videos in ids that belong to the user. written has, for each id, the
// spellings of the id in the audit table or in dead letters. The result has these spellings.
func (e *Erasure) ownedVideos(ctx context.Context, ids []string, written map[string][]string) (owned []string, err error) {
	found, _, _, err := e.videos.Fetch(ctx, ids, ownerTimeout)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, id := range ids {
		i := slices.IndexFunc(found, func(v Video) bool { return v.id() == id })
		switch {
		case i < 0 && e.named[id]:
			owned = append(owned, written[id]...)
		case i < 0:
			lost = append(lost, written[id]...)
		case found[i].UploaderID == e.User:
			owned = append(owned, written[id]...)
		}
	}
	named, err := audit.Naming(ctx, e.videos.db, videoType, lost, e.User.String())
	return append(owned, named...), err
}

// Find counts the user's rows and dead letters.
func (e *Erasure) Find(ctx context.Context) ([]erasure.Found, error) {
	found, err := e.rows(ctx)
	if err != nil {
		return nil, err
	}
	letters, err := e.ownLetters(ctx)
	return append(found, erasure.Found{What: "dead letters", Count: int64(len(letters))}), err
}

// arrival is the pause before Erase looks again whether events have deleted further rows.
var arrival = backoff.Policy{Base: 100 * time.Millisecond, Cap: 2 * time.Second}

// letterRetention is a duration. A dead letter that is older than that has no message any more. A
// subscription keeps messages for up to 31 days, and the event may have waited for as long before it became
// a dead letter. If a younger dead letter has no message, another session has leased the message, for ten
// minutes at most.
const letterRetention = 2 * 31 * 24 * time.Hour

// Erase brings the rows of the user's dead letters to the owner's state, and then removes the
// letters. It leaves a dead letter whose message another session has leased, whose rows another
// transaction has locked, or whose event its owner may not have yet. It does not delete served rows. The
// events of the owner's erasure delete these rows, and Erase waits for these events up to e.Wait.
func (e *Erasure) Erase(ctx context.Context, by audit.Actor, erased func()) error {
	letters, err := e.ownLetters(ctx)
	if err != nil {
		return err
	}
	for _, l := range letters {
		if l.Messages == 0 && time.Since(l.Since) < letterRetention {
			continue // its message comes back, with the user's text
		}
		err := e.letters.Erase(ctx, by, l)
		switch {
		case errors.Is(err, txn.ErrLocked), errors.Is(err, inbox.ErrBehind):
			continue // it holds up no other letter, and Find counts it
		case err != nil:
			return err
		}
		e.erased = append(e.erased, l)
		erased()
	}
	end := time.Now().Add(e.Wait)
	for range arrival.Attempts(ctx) {
		if err := e.deleteCopies(ctx); err != nil {
			return err
		}
		left, err := e.rows(ctx)
		if err != nil || erasure.Total(left) == 0 || time.Now().After(end) {
			return err
		}
	}
	return context.Cause(ctx)
}

// rows counts the user's rows that no event has deleted yet, and those that are left in the copy of a rebuild.
func (e *Erasure) rows(ctx context.Context) (found []erasure.Found, err error) {
	db := e.counting()
	copies := erasure.Found{What: "rows in the copy that a rebuild keeps"}
	for _, t := range userTables {
		n, err := t.count(ctx, db, e.User)
		if err != nil {
			return nil, err
		}
		found = append(found, erasure.Found{What: t.name + " that are not deleted yet", Count: n})
		if n, err = t.countCopy(ctx, db, e.User); err != nil {
			return nil, err
		}
		copies.Count += n
	}
	return append(found, copies), nil
}

// deleteCopies deletes the user's rows in the copy of a rebuild that are deleted in the served tables.
func (e *Erasure) deleteCopies(ctx context.Context) error {
	for _, t := range userTables {
		if err := t.deleteCopies(ctx, e.counting(), e.User); err != nil {
			return err
		}
	}
	return nil
}

func (e *Erasure) counting() bounded.Pool {
	return bounded.Pool{DB: e.videos.db, Limit: userCountTimeout}
}

// ownLetters returns the dead letters about the user's aggregates.
func (e *Erasure) ownLetters(ctx context.Context) (own []deadletter.Letter, err error) {
	for _, aggregateType := range Types {
		letters := map[string][]deadletter.Letter{}
		for _, l := range e.letters.Letters {
			if kind, id := e.letters.Aggregate(l); kind == aggregateType && !slices.ContainsFunc(e.erased, l.Same) {
				letters[id] = append(letters[id], l)
			}
		}
		ids, err := e.Owned(ctx, aggregateType, slices.Sorted(maps.Keys(letters)))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			own = append(own, letters[id]...)
		}
	}
	return own, nil
}
