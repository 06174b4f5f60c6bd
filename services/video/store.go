package video

import (
	"context"
	"maps"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/services/video/aggregate"
)

// own, columns and selected are lists of columns, which have the names of the fields. own are the columns
// that only videos have, with a comma at the end. columns are all columns of the table. selected are the
// columns that a query reads into a Video. placeholders are the arguments for columns.
var (
	own          = "video_id, " + strings.Join(creation, ", ") + ", "
	columns      = own + aggregate.RevisionColumns
	selected     = own + aggregate.SelectRevision
	placeholders = aggregate.Placeholders(columns)
)

// newTable returns the table of videos, for comparisons with read models.
func newTable(db *pgxpool.Pool) *reconcile.Table {
	return reconcile.NewTable(db, "videos", []string{"video_id"}, columns, outbox.PresentEpoch)
}

func (v Video) arguments() pgx.NamedArgs {
	args := v.Arguments()
	maps.Copy(args, v.values(creation))
	args["video_id"] = v.ID
	return args
}

func insertVideo(tx *aggregate.Tx, v Video) {
	tx.Queue(`INSERT INTO videos (`+columns+`) VALUES (`+placeholders+`)`, v.arguments())
}

// updateVideo updates a row that tx has locked. It sets all columns, so that there is only one list
// of columns. A column that is set to its old value costs no index entry, because the update stays
// heap-only.
func updateVideo(tx *aggregate.Tx, v Video) {
	tx.Queue(`UPDATE videos SET (`+columns+`) = (`+placeholders+`) WHERE video_id = @video_id`, v.arguments())
}

// lockVideo locks a video until tx ends, and reads the video. If there is no such video, lockVideo
// returns the zero Video.
func lockVideo(ctx context.Context, tx *aggregate.Tx, id uuid.UUID) (v Video, err error) {
	tx.Queue(`SELECT `+selected+` FROM videos WHERE video_id = $1 FOR UPDATE`, id).Query(aggregate.One(&v))
	err = tx.Lock(ctx)
	return v, err
}

// lockNamedVideo locks and reads a video that may not exist yet. It locks the name of the video
// first, so that two first writers do not collide at the primary key.
func lockNamedVideo(ctx context.Context, tx *aggregate.Tx, id uuid.UUID) (Video, error) {
	tx.Queue(`SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, tx.OfTenant(id.String()))
	return lockVideo(ctx, tx, id)
}

// selectVideo reads a video. It returns the zero Video if there never was such a video. asOf is as
// in aggregate.SelectAsOf.
func selectVideo(ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, id uuid.UUID) (v Video, asOf aggregate.AsOf, err error) {
	asOf, err = aggregate.SelectAsOf(ctx, db, scope, aggregate.One(&v), `SELECT `+selected+` FROM videos WHERE video_id = $1`, id)
	return v, asOf, err
}

// selectVideos reads the videos with these ids, of all tenants. It leaves out videos that never
// existed. asOf is as in selectVideo.
func selectVideos(ctx context.Context, db *pgxpool.Pool, ids []string) (videos []Video, asOf aggregate.AsOf, err error) {
	asOf, err = aggregate.SelectAsOf(ctx, db, tenant.All(), aggregate.All(&videos),
		`SELECT `+selected+` FROM videos WHERE video_id = ANY ($1::uuid[])`, ids)
	return videos, asOf, err
}

// selectPage returns up to limit videos that are not deleted and have ids below before, newest
// first. The statement differs with the filter, so that each filter has its own plan.
func selectPage(
	ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, f Filter, before uuid.UUID, limit int,
) (page []Video, err error) {
	query, args := `SELECT `+selected+` FROM videos WHERE video_id < $1 AND deleted_at IS NULL`, []any{before, limit}
	if f.UploaderID.Valid {
		query, args = query+` AND uploader_id = $3`, append(args, f.UploaderID.UUID)
	}
	err = scope.ReadPage(ctx, db, aggregate.Page(&page, Video.text), query+` ORDER BY video_id DESC LIMIT $2`, args...)
	return page, err
}
