package catalog

import (
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// This file has the parameters and results of the statements in store.go.

// column is one column of the rows after steps, as an array for a statement. For a UUID, C
// must be pgtype.UUID: pgx asks the server about the type of any other array of UUIDs, but
// not behind a transaction pooler.
func column[S, C any](steps []inbox.Step[S], of func(row S) C) []C {
	all := make([]C, len(steps))
	for i, s := range steps {
		all[i] = of(s.New)
	}
	return all
}

// pgID is NULL for the zero id.
func pgID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != uuid.Nil} }

// pairs splits the ids of engagements into users and videos.
func pairs(ids []string) (users, videos []string) {
	for _, id := range ids {
		user, video, _ := strings.Cut(id, ":")
		users, videos = append(users, user), append(videos, video)
	}
	return users, videos
}

func idsOf(positions []consistency.Position) (ids []string) {
	for _, p := range positions {
		ids = append(ids, p.AggregateID)
	}
	return ids
}

// counted is a row without its last column. Scan reads that column into reached.
type counted struct {
	pgx.CollectableRow
	reached *int
}

// FieldDescriptions is pgx's.
func (r counted) FieldDescriptions() []pgconn.FieldDescription {
	all := r.CollectableRow.FieldDescriptions()
	return all[:len(all)-1]
}

// Scan is pgx's.
func (r counted) Scan(into ...any) error { return r.CollectableRow.Scan(append(into, r.reached)...) }
