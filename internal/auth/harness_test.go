package auth

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"google.golang.org/grpc/test/bufconn"

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
)

// world is a real issuer in memory, so that a test in a bubble may use it, and an
// authenticator that trusts it for users and for services.
type world struct {
	issuer   *issuer.Issuer
	auth     *Authenticator
	requests atomic.Int64 // that left for the issuer
	down     atomic.Bool
	hangs    atomic.Bool
	answered func(*http.Request) // called before an answer is read; may be nil
	dial     func(context.Context) (net.Conn, error)
}

// loopback is a listener in memory under an address of this machine.
type loopback struct{ *bufconn.Listener }

func (loopback) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8082} }

const (
	serviceAudience = "https://video.example"
	account         = "catalog@project.iam.gserviceaccount.com"
)

func newWorld(t testing.TB) *world {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	i, err := issuer.Start(loopback{lis})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	w := &world{issuer: i, dial: lis.DialContext}
	w.auth, err = New(t.Context(), Config{
		Issuer: i.URL(), Audience: issuer.Audience, Local: true,
		ServiceIssuer: i.URL(), ServiceAudience: serviceAudience, Services: []string{account},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []*verifier{w.auth.users, w.auth.services} {
		v.keys.source.client.Transport = w
	}
	return w
}

// RoundTrip counts the requests to the issuer.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.requests.Add(1)
	if w.down.Load() {
		return nil, errors.New("no route to the issuer")
	}
	if w.hangs.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	response, err := (&http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return w.dial(ctx)
	}}).RoundTrip(r)
	if w.answered != nil {
		w.answered(r)
	}
	return response, err
}

// run runs the authenticator until the test ends.
func (w *world) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- w.auth.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// started is a world whose authenticator has the keys.
func started(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.run(t)
	if err := w.ask(t.Context(), w.mint(t)); err != nil {
		t.Fatal(err)
	}
	return w
}

var alice = uuid.MustParse("0190a5d0-0000-7000-8000-000000000001")

func (w *world) mint(t testing.TB) string {
	t.Helper()
	token, err := w.issuer.Mint(eventing.DefaultTenant, alice)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// claims are those of a valid token, with changes. A nil value removes the claim.
func (w *world) claims(changes map[string]any) map[string]any {
	all := map[string]any{
		"iss": w.issuer.URL(), "aud": issuer.Audience, "sub": alice.String(),
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func (w *world) sign(t testing.TB, changes map[string]any) string {
	t.Helper()
	token, err := w.issuer.Sign(w.claims(changes))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// forge signs valid claims with a key of the test's own.
func (w *world) forge(t testing.TB, alg jose.SignatureAlgorithm, key any, header map[jose.HeaderKey]any) string {
	t.Helper()
	options := &jose.SignerOptions{}
	for name, value := range header {
		options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(w.claims(nil)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// ask authenticates a request with the user's token.
func (w *world) ask(ctx context.Context, token string) error {
	p, err := w.auth.Principal(ctx, http.Header{"Authorization": {"Bearer " + token}})
	if err == nil && p.Kind != User {
		return errors.New("not a user")
	}
	return err
}

// askAsService authenticates a request with the token of a service.
func (w *world) askAsService(ctx context.Context, token string) error {
	_, err := w.auth.Principal(ctx, http.Header{serviceHeader: {"Bearer " + token}})
	return err
}

// noProblem is the code of no error.
const noProblem problem.Code = -1

func codeOf(err error) problem.Code {
	if err == nil {
		return noProblem
	}
	return problem.From(err).Code
}
