package session_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/session"
)

func video(id string, version int64) consistency.Position {
	return consistency.Position{AggregateType: "video", AggregateID: id, Epoch: 1, Version: version}
}

func token(positions ...consistency.Position) string {
	merged, err := consistency.Merge(consistency.Token{Positions: positions})
	if err != nil {
		panic(err)
	}
	return merged.String()
}

// has returns the positions that a session requires, as text that a test can
// compare.
func has(t *testing.T, s *session.Session) (all string) {
	t.Helper()
	if s.Token() == "" {
		return ""
	}
	parsed, err := consistency.Parse(s.Token())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parsed.Positions {
		all += fmt.Sprintf("%s:%d.%d ", p.AggregateID, p.Epoch, p.Version)
	}
	return all
}

func keep(t *testing.T, s *session.Session, text string) {
	t.Helper()
	if err := s.Keep(text); err != nil {
		t.Fatal(err)
	}
}

func TestASessionKeepsTheNewestOfEach(t *testing.T) {
	t.Parallel()
	var s session.Session
	if s.Token() != "" {
		t.Error("a session that has met nothing demands something")
	}
	restored := video("a", 1)
	restored.Epoch = 2
	for _, step := range []struct {
		text, want string
	}{
		{token(video("a", 2)), "a:1.2 "},
		{token(video("b", 1)), "a:1.2 b:1.1 "},
		{token(video("a", 1)), "a:1.2 b:1.1 "}, // an answer that arrived late
		{token(video("a", 3), video("c", 9)), "a:1.3 b:1.1 c:1.9 "},
		{token(restored), "a:2.1 b:1.1 c:1.9 "},
		{token(video("a", 99)), "a:2.1 b:1.1 c:1.9 "},
	} {
		keep(t, &s, step.text)
		if got := has(t, &s); got != step.want {
			t.Errorf("after %s: %q, want %q", step.text, got, step.want)
		}
	}
	before := s.Token()
	other := consistency.Token{Tenant: "other", Positions: []consistency.Position{video("a", 1)}}.String()
	for text, want := range map[string]error{"": consistency.ErrMalformed, "x": consistency.ErrMalformed, other: consistency.ErrOtherTenants} {
		if err := s.Keep(text); !errors.Is(err, want) || s.Token() != before {
			t.Errorf("Keep(%q) = %v, then %q; want %v and no change", text, err, s.Token(), want)
		}
	}
}

// A session that has forgotten its tokens may be that of another tenant.
func TestASessionForgets(t *testing.T) {
	t.Parallel()
	var s session.Session
	keep(t, &s, token(video("a", 2)))
	s.Forget()
	if s.Token() != "" {
		t.Errorf("it still demands %q", has(t, &s))
	}
	keep(t, &s, consistency.Token{Tenant: "other", Positions: []consistency.Position{video("b", 1)}}.String())
	if got := has(t, &s); got != "b:1.1 " {
		t.Errorf("then it demands %q", got)
	}
}

// transport records the tokens of requests.
type transport struct{ sent []string }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.sent = append(t.sent, r.Header.Get("Consistency-Token"))
	return &http.Response{Body: http.NoBody}, nil
}

// A request that names a token is sent as it is.
func TestARequestsOwnTokenIsKept(t *testing.T) {
	t.Parallel()
	var s session.Session
	keep(t, &s, token(video("a", 1)))
	sent := &transport{}
	for _, query := range []string{"", "?consistency_token=x"} {
		r, err := http.NewRequestWithContext(session.With(t.Context(), &s), http.MethodGet, "http://catalog/v1/videos"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := session.Transport{Base: sent}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	if want := []string{s.Token(), ""}; !slices.Equal(sent.sent, want) {
		t.Errorf("sent with the tokens %q, want %q", sent.sent, want)
	}
}

// Concurrent calls may share the array of their options: gRPC passes the default options of a
// connection to each call. An interceptor that appends to them would give a call the metadata of another.
func TestCallsDoNotShareOptions(t *testing.T) {
	t.Parallel()
	var s session.Session
	shared := make([]grpc.CallOption, 1, 2)
	shared[0] = grpc.WaitForReady(true)
	var options int
	invoke := func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		options = len(opts)
		return nil
	}
	if err := session.Intercept(session.With(t.Context(), &s), "/a/b", nil, nil, nil, invoke, shared...); err != nil {
		t.Fatal(err)
	}
	if behind := shared[:2][1]; options != 2 || behind != nil {
		t.Errorf("called with %d options; the array of its caller got %v", options, behind)
	}
}

// The aggregates met longest ago are dropped first, both if there are many ids
// and if ids are long.
func TestASessionIsBounded(t *testing.T) {
	t.Parallel()
	for name, idLength := range map[string]int{"many": 3, "long": 900} {
		var s session.Session
		id := func(n int) string { return fmt.Sprintf("%0*d", idLength, n) }
		const all = 3 * consistency.MaxPositions
		for n := range all {
			keep(t, &s, token(video(id(n), 1)))
			keep(t, &s, token(video(id(0), int64(n+1)))) // met again each time
		}
		got := has(t, &s)
		if !strings.Contains(got, fmt.Sprintf("%s:1.%d ", id(0), all)) || !strings.Contains(got, id(all-1)+":1.1 ") || strings.Contains(got, id(1)+":") {
			t.Errorf("%s: %.200q", name, got)
		}
		if len(s.Token()) > consistency.MaxLength {
			t.Errorf("%s: a token of %d bytes", name, len(s.Token()))
		}
	}
}

func TestASessionOfManyGoroutines(t *testing.T) {
	t.Parallel()
	var s session.Session
	var calls sync.WaitGroup
	for n := range int64(20) {
		calls.Go(func() {
			for version := range int64(50) {
				if err := s.Keep(token(video(fmt.Sprint("v", n%4), n*50+version+1))); err != nil {
					t.Error(err)
				}
				_ = s.Token()
			}
		})
	}
	calls.Wait()
	if got, want := has(t, &s), "v0:1.850 v1:1.900 v2:1.950 v3:1.1000 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
