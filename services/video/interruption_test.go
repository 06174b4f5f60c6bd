package video

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/services/video/aggregate"
)

// Postgres ends the session of a write before each of its statements in turn. The write fails and leaves nothing, not
// even its idempotency key. The same request again makes one version, and one event.
func TestAWriteIsInterrupted(t *testing.T) {
	t.Parallel()
	draft := Video{UploaderID: uuid.New(), Title: "Pompeii"}
	for name, tc := range map[string]struct {
		before  int64 // versions of the video before the write
		request func(ctx context.Context, s *Service, id uuid.UUID, o aggregate.WriteOptions) (aggregate.Result[Video], error)
	}{
		"create": {0, func(ctx context.Context, s *Service, _ uuid.UUID, o aggregate.WriteOptions) (aggregate.Result[Video], error) {
			return s.Create(ctx, draft, o, nil)
		}},
		"update": {1, func(ctx context.Context, s *Service, id uuid.UUID, o aggregate.WriteOptions) (aggregate.Result[Video], error) {
			return s.Update(ctx, id, []string{"title"}, Video{Title: "Herculaneum"}, o, nil)
		}},
		"delete": {1, func(ctx context.Context, s *Service, id uuid.UUID, o aggregate.WriteOptions) (aggregate.Result[Video], error) {
			return s.Delete(ctx, id, "", o, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.EachStatement(t, func(t *testing.T, i *pgtest.Interruption) {
				db := pairtest.New(t)
				videos := newServices(i.Pool(t, db.VideoURL), nil).videos
				var id uuid.UUID
				if tc.before > 0 {
					created, err := videos.Create(t.Context(), draft, aggregate.WriteOptions{Caller: everyone}, nil)
					if err != nil {
						t.Fatal(err)
					}
					id = created.Value.ID
				}
				o := aggregate.WriteOptions{Caller: everyone, Keys: []string{"one"}}
				i.Begin()
				got, err := tc.request(t.Context(), videos, id, o)
				switch interrupted := i.End(); {
				case interrupted && err == nil:
					t.Error("the write succeeds although its session has ended")
				case !interrupted && err != nil:
					t.Fatal(err)
				case err != nil:
					got, err = tc.request(t.Context(), videos, id, o)
				}
				if err != nil || got.Replayed || got.Value.Version != tc.before+1 {
					t.Errorf("again: version %d, replayed %t, %v; want version %d", got.Value.Version, got.Replayed, err, tc.before+1)
				}
				var events, keys int64
				err = db.Pool(t, db.Admin).QueryRow(t.Context(), `
					SELECT (SELECT count(*) FROM video.outbox), (SELECT count(*) FROM video.idempotency_keys)`).Scan(&events, &keys)
				if err != nil || events != tc.before+1 || keys != 1 {
					t.Errorf("%d events, want %d, and %d keys: %v", events, tc.before+1, keys, err)
				}
			})
		})
	}
}
