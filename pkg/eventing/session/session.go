// Package session is for callers of services that answer with consistency tokens. A read of a
// session returns nothing older than the session's own writes and earlier reads. This holds for the
// [consistency.MaxPositions] aggregates that answers to the session have named last.
//
// A Session keeps one token for all of its writes and reads. [Intercept] and [Transport] add the
// token of each answer to the session in the call's context. They send the session's token with
// each read. The caller's own code does not change:
//
//	conn, err := grpc.NewClient(addr, grpc.WithUnaryInterceptor(session.Intercept))
//	ctx = session.With(ctx, &userSession)
//	videos.UpdateVideo(ctx, change)        // the answer's token is kept
//	catalog.GetVideo(ctx, &GetVideoRequest{VideoId: id}) // and sent
//
// A session belongs to one user. The reads of a session wait for all of its own writes, but not for
// the writes of other sessions.
package session

import (
	"context"
	"errors"
	"slices"
	"sync"

	"example.com/lockstep/pkg/eventing/consistency"
)

// Session remembers the newest version of each aggregate that the answers have named. It remembers
// the [consistency.MaxPositions] aggregates that were named last. The zero Session remembers no
// aggregate. A Session is safe for concurrent use.
type Session struct {
	mu     sync.Mutex
	tenant string
	recent []consistency.Position // the aggregate that an answer named last is at the end
	text   string                 // the token of all positions in recent
}

// Keep adds the token of an answer. A token that cannot be parsed, or that
// belongs to another tenant than the session, is an error and changes nothing.
func (s *Session) Keep(text string) error {
	token, err := consistency.Parse(text)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) > 0 && token.Tenant != s.tenant {
		return consistency.ErrOtherTenants
	}
	s.tenant = token.Tenant
	for _, p := range token.Positions {
		s.meet(p)
	}
	// If the token is too large, the aggregate that was met longest ago is dropped. Services have
	// ids of different lengths, so the length of the token is known only when the token is written.
	for {
		merged, err := consistency.Merge(consistency.Token{Tenant: s.tenant, Positions: s.recent})
		if errors.Is(err, consistency.ErrTooLarge) {
			s.recent = s.recent[1:]
			continue
		}
		s.text = merged.String()
		return err
	}
}

func (s *Session) meet(p consistency.Position) {
	at := slices.IndexFunc(s.recent, func(q consistency.Position) bool { return q.Key() == p.Key() })
	if at >= 0 {
		if q := s.recent[at]; p.Reached(q.Epoch, q.Version) {
			p = q
		}
		s.recent = slices.Delete(s.recent, at, at+1)
	}
	s.recent = append(s.recent, p)
}

// Token returns a token for all aggregates that the session remembers. It is empty if there are
// none.
func (s *Session) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// Forget drops all that the session remembers. A caller needs it after an error with the reason
// TOKEN_AHEAD: the owner has lost a write of the session in a failover, and each read that requires the
// write fails until the session forgets it.
func (s *Session) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenant, s.recent, s.text = "", nil, ""
}

type key struct{}

// With returns a context for calls that are part of s.
func With(ctx context.Context, s *Session) context.Context { return context.WithValue(ctx, key{}, s) }

// of returns the session of ctx, or nil.
func of(ctx context.Context) *Session {
	s, _ := ctx.Value(key{}).(*Session)
	return s
}
