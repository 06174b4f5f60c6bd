package engagement

import (
	"context"
	"maps"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/services/video/aggregate"
)

const (
	own      = `user_id, video_id, liked, bookmarked, watched_seconds, `
	columns  = own + aggregate.RevisionColumns
	selected = own + aggregate.SelectRevision
)

var placeholders = aggregate.Placeholders(columns)

// NewTable returns the table of engagements, for comparisons with read models.
func NewTable(db *pgxpool.Pool) *reconcile.Table {
	return reconcile.NewTable(db, "engagements", []string{"user_id", "video_id"}, columns, outbox.PresentEpoch)
}

// lockEngagement locks an engagement until tx ends, and reads the engagement. The lock is on the
// name of the engagement. So an engagement that does not exist can be locked, too, and two first
// writers do not collide at the primary key. If the engagement never existed, the version of e is
// 0.
func lockEngagement(ctx context.Context, tx *aggregate.Tx, user, video uuid.UUID) (e Engagement, err error) {
	queueLock(tx, user, video, &e)
	err = tx.Lock(ctx)
	return e, err
}

// lockWithVideo does the same as lockEngagement, and also returns the revision of the video. The
// video is read after the lock is taken. The video itself is not locked, because a like must not
// wait for the video's writers, and the video's writers must not wait for a thousand likes.
func lockWithVideo(ctx context.Context, tx *aggregate.Tx, user, video uuid.UUID) (e Engagement, of aggregate.Revision, err error) {
	queueLock(tx, user, video, &e)
	tx.Queue(`SELECT `+aggregate.SelectRevision+` FROM videos WHERE video_id = $1`, video).Query(aggregate.One(&of))
	err = tx.Lock(ctx)
	return e, of, err
}

func queueLock(tx *aggregate.Tx, user, video uuid.UUID, e *Engagement) {
	name := Engagement{UserID: user, VideoID: video}
	e.TenantID, e.Epoch = tx.Tenant, tx.Epoch // kept if the engagement never existed
	tx.Queue(`SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, tx.OfTenant(name.id()))
	tx.Queue(`SELECT `+selected+` FROM engagements WHERE user_id = $1 AND video_id = $2`, user, video).Query(aggregate.One(e))
}

// writeEngagement inserts or updates an engagement that tx has locked.
func writeEngagement(tx *aggregate.Tx, e Engagement) {
	args := e.Arguments()
	maps.Copy(args, pgx.NamedArgs{
		"user_id": e.UserID, "video_id": e.VideoID, "liked": e.Liked, "bookmarked": e.Bookmarked, "watched_seconds": e.WatchedSeconds,
	})
	tx.Queue(`INSERT INTO engagements (`+columns+`) VALUES (`+placeholders+`)
		ON CONFLICT (user_id, video_id) DO UPDATE SET (`+columns+`) = (`+placeholders+`)`, args)
}

// selectEngagement reads an engagement. It returns the zero Engagement if there never was such an
// engagement. asOf is as in aggregate.SelectAsOf.
func selectEngagement(
	ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, user, video uuid.UUID,
) (e Engagement, asOf aggregate.AsOf, err error) {
	asOf, err = aggregate.SelectAsOf(ctx, db, scope, aggregate.One(&e),
		`SELECT `+selected+` FROM engagements WHERE user_id = $1 AND video_id = $2`, user, video)
	return e, asOf, err
}

// selectWith returns a user's engagements with the named videos. It leaves out engagements that
// never existed. asOf is as in selectEngagement.
func selectWith(ctx context.Context, db *pgxpool.Pool, user uuid.UUID, videos []string,
) (found []Engagement, asOf aggregate.AsOf, err error) {
	asOf, err = aggregate.SelectAsOf(ctx, db, tenant.All(), aggregate.All(&found),
		`SELECT `+selected+` FROM engagements WHERE user_id = $1 AND video_id = ANY ($2::uuid[])`, user, videos)
	return found, asOf, err
}

// selectPage returns up to limit of a user's engagements that are not deleted, highest video id
// first. Their video ids are below the id before.
func selectPage(
	ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, user, before uuid.UUID, limit int,
) (page []Engagement, err error) {
	err = scope.ReadPage(ctx, db, aggregate.All(&page), `SELECT `+selected+` FROM engagements
		WHERE user_id = $1 AND video_id < $2 AND deleted_at IS NULL ORDER BY video_id DESC LIMIT $3`, user, before, limit)
	return page, err
}
