package video

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/backlog"
	"example.com/lockstep/pkg/eventing/operator/erasure"
	"example.com/lockstep/services/video/aggregate"
)

// Types are the aggregate types of the service.
var Types = []string{
	aggregateType,
	engagementType,
}

// Erasure removes a user's text and preferences from the service's schema. First it deletes each
// row as Delete does, so that a tombstone stays and replicas follow. Then it removes the copies of
// the text in published events and in answers to requests.
type Erasure struct {
	db       bounded.Pool
	services services
	backlog  *backlog.Backlog
	erasure.Options
}

// NewErasure returns the erasure of a user in the schema that db's search_path finds.
func NewErasure(db *pgxpool.Pool, o erasure.Options) *Erasure {
	return &Erasure{
		db: bounded.Pool{DB: db, Limit: eraseTimeout}, services: newServices(db, nil), backlog: backlog.New(db), Options: o,
	}
}

// eraser returns the principal of the deletions, because an erasure has no request with a caller.
// This principal may act for every user of the tenant.
func eraser(tenant string) auth.Principal { return auth.Principal{Kind: auth.Everyone, Tenant: tenant} }

// Owned returns the aggregates in ids that belong to the user. kind is the type of all of them. If the
// service does not have this type, Owned returns none. For videos, Owned leaves out ids that are not UUIDs,
// because the audit table also has ids that came from no event.
func (e *Erasure) Owned(ctx context.Context, kind string, ids []string) (owned []string, err error) {
	if kind == engagementType {
		return e.ownedEngagements(ids), nil
	}
	if kind != aggregateType {
		return nil, nil
	}
	for _, id := range ids {
		if _, invalid := uuid.Parse(id); invalid == nil {
			owned = append(owned, id)
		}
	}
	return selectOwned(ctx, e.db, e.User, owned)
}

// Find counts the user's data.
func (e *Erasure) Find(ctx context.Context) ([]erasure.Found, error) {
	engagements, err := countEngagements(ctx, e.db, e.User)
	if err != nil {
		return nil, err
	}
	videos, err := countVideos(ctx, e.db, e.User)
	if err != nil {
		return nil, err
	}
	var events backlog.Contents
	err = e.each(ctx, func(kind string, ids []string) error {
		c, err := e.backlog.Contents(ctx, kind, ids)
		events.Published, events.Waiting = events.Published+c.Published, events.Waiting+c.Waiting
		return err
	})
	if err != nil {
		return nil, err
	}
	answers, err := idempotency.CountAnswers(ctx, e.db.DB, e.principal(), e.User.String())
	return []erasure.Found{
		{What: "videos", Count: videos},
		{What: "engagements", Count: engagements},
		{What: "published events in the outbox", Count: events.Published},
		{What: "events that are not published yet", Count: events.Waiting},
		{What: "answers to requests with an idempotency key", Count: answers},
	}, err
}

// Erase removes the data that Find counts. It calls erased after each row. Events that are not published
// within e.Wait keep their content and their order, and Find counts them afterwards.
func (e *Erasure) Erase(ctx context.Context, _ audit.Actor, erased func()) error {
	limit := rate.NewLimiter(rate.Inf, 1)
	if e.Rate > 0 {
		limit.SetLimit(rate.Limit(e.Rate))
	}
	remove := func(err error) error {
		if gone, ok := errors.AsType[*problem.Error](err); ok && gone.Code == problem.CodeGone {
			err = nil // the user has deleted the row meanwhile
		}
		if err != nil {
			return err
		}
		erased()
		return limit.Wait(ctx)
	}
	tenants, err := selectTenants(ctx, e.db, e.User)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		for _, deleteRows := range []func(context.Context, auth.Principal, func(error) error) error{
			e.deleteVideos,
			e.deleteEngagements,
		} {
			if err := deleteRows(ctx, eraser(tenant), remove); err != nil {
				return err
			}
		}
	}
	if err := e.forgetEvents(ctx); err != nil {
		return err
	}
	_, err = idempotency.RemoveAnswers(ctx, e.db.DB, e.principal(), e.User.String())
	return err
}

func (e *Erasure) deleteVideos(ctx context.Context, eraser auth.Principal, remove func(error) error) error {
	return removeAll(ctx, func(ctx context.Context, token string) ([]Video, string, error) {
		return e.services.videos.List(ctx, eraser, uploadedBy(e.User), 200, token, nil)
	}, func(v Video) error {
		_, err := e.services.videos.Delete(ctx, v.ID, "", aggregate.WriteOptions{Caller: eraser}, nil)
		if err := remove(err); err != nil {
			return fmt.Errorf("video %s: %w", v.ID, err)
		}
		return nil
	})
}

// removeAll removes the rows of all pages. After the last page it lists again from the start, until
// a whole list is empty, because rows may be added meanwhile. Within a list each page begins behind
// the page before it. If each page began at the start, its query would have to pass the tombstones
// of all pages before. A call of list has the time limit eraseTimeout. A call of remove has its own limit.
func removeAll[T any](
	ctx context.Context, list func(ctx context.Context, token string) ([]T, string, error), remove func(T) error,
) error {
	for removed, token := 0, ""; ; {
		var page []T
		var next string
		err := bounded.Run(ctx, eraseTimeout, func(ctx context.Context) (err error) {
			page, next, err = list(ctx, token)
			return err
		})
		if err != nil {
			return fmt.Errorf("list rows: %w", err)
		}
		for _, row := range page {
			if err := remove(row); err != nil {
				return err
			}
		}
		removed, token = removed+len(page), next
		if token == "" && removed == 0 {
			return nil
		}
		if token == "" {
			removed = 0
		}
	}
}

// publishing is the pause before forgetEvents looks again whether further events have been
// published.
var publishing = backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}

// forgetEvents removes the content of the user's published events. It does so again and again until none of
// the user's events waits to be published, or until e.Wait has passed. It then returns nil, and Find counts
// the events that still wait.
func (e *Erasure) forgetEvents(ctx context.Context) error {
	end := time.Now().Add(e.Wait)
	for range publishing.Attempts(ctx) {
		var waiting int64
		err := e.each(ctx, func(kind string, ids []string) error {
			n, err := e.backlog.Forget(ctx, kind, ids)
			waiting += n
			return err
		})
		if err != nil || waiting == 0 || time.Now().After(end) {
			return err
		}
	}
	return context.Cause(ctx)
}

// each calls do with the ids of all aggregates of the user. A call has a batch of ids of one type. Tombstones come
// last, so that a video that is deleted meanwhile is in one of the batches at least. It may be in two.
func (e *Erasure) each(ctx context.Context, do func(kind string, ids []string) error) error {
	for _, of := range []struct{ kind, query string }{
		{engagementType, selectEngaged},
		{aggregateType, selectUploads},
		{aggregateType, selectDeletedUploads},
	} {
		for after := uuid.Nil.String(); ; {
			ids, err := selectIDs(ctx, e.db, of.query, e.User, after, eraseBatch)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				break
			}
			after = ids[len(ids)-1]
			if err := do(of.kind, ids); err != nil {
				return err
			}
		}
	}
	return nil
}

// principal returns the name that the user has in idempotency keys of the default tenant.
func (e *Erasure) principal() string {
	return auth.Principal{Kind: auth.User, User: e.User, Tenant: eventing.DefaultTenant}.Scope()
}
