package video

import (
	"context"
	"fmt"
	"strings"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/services/video/aggregate"
	"example.com/lockstep/services/video/engagement"
)

// ownedEngagements returns the engagements among ids that belong to the user. Their ids begin with
// the user's id.
func (e *Erasure) ownedEngagements(ids []string) (owned []string) {
	for _, id := range ids {
		if strings.HasPrefix(id, e.User.String()+":") {
			owned = append(owned, id)
		}
	}
	return owned
}

func (e *Erasure) deleteEngagements(ctx context.Context, eraser auth.Principal, remove func(error) error) error {
	return removeAll(ctx, func(ctx context.Context, token string) ([]engagement.Engagement, string, error) {
		return e.services.engagements.List(ctx, eraser, e.User, 200, token, nil)
	}, func(n engagement.Engagement) error {
		_, err := e.services.engagements.Delete(ctx, n.UserID, n.VideoID, aggregate.WriteOptions{Caller: eraser}, nil)
		if err := remove(err); err != nil {
			return fmt.Errorf("engagement with %s: %w", n.VideoID, err)
		}
		return nil
	})
}
