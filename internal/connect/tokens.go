package connect

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	header = "x-serverless-authorization"
	// signedHeader carries the same token as header. Cloud Run removes the signature only from the
	// token in header.
	signedHeader = "x-service-authorization"
	// suffix is the end of the URL at which the metadata server serves ID tokens.
	suffix = "instance/service-accounts/default/identity"
	// fetchTime bounds the wait for an answer of the metadata server, including retries. An answer
	// usually takes milliseconds.
	fetchTime = 3 * time.Second
	// renewBefore is how long before the end of a token the process asks for a new token. Until the
	// new token arrives, calls use the old token. While the old token has some time left, the
	// metadata server may return the old token again.
	renewBefore = 5 * time.Minute
	// margin is the lifetime that a token must still have when a call uses it, because the call
	// takes time and clocks differ.
	margin = 30 * time.Second
)

// pauses sets the pause between two requests to a metadata server that has no fresh token.
var pauses = backoff.Policy{Base: 500 * time.Millisecond, Cap: 5 * time.Second}

// tokens supplies ID tokens for one audience, one after the other. It implements
// credentials.PerRPCCredentials. gRPC refuses to use it on a connection without TLS.
type tokens struct {
	audience string
	metadata *metadata.Client
	asking   singleflight.Group

	mu    sync.Mutex
	last  token
	tries int       // requests since the last fresh token
	next  time.Time // the earliest time of the next request to the metadata server
	err   error     // the error of the last try
}

func newTokens(audience string) *tokens {
	return &tokens{audience: audience, metadata: metadata.NewWithOptions(&metadata.Options{})}
}

// RequireTransportSecurity keeps tokens off connections in plain text.
func (t *tokens) RequireTransportSecurity() bool { return true }

// GetRequestMetadata adds the token to a call. A call waits for a token until the call's own
// deadline, and at most for fetchTime.
func (t *tokens) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	if err := credentials.CheckSecurityLevel(info.AuthInfo, credentials.PrivacyAndIntegrity); err != nil {
		return nil, status.Errorf(codes.Internal, "ID token for %s: not on this connection: %v", t.audience, err)
	}
	value, err := t.value(ctx)
	if err != nil {
		code := codes.Unavailable
		if ctx.Err() != nil {
			code = status.FromContextError(ctx.Err()).Code()
		}
		return nil, status.Errorf(code, "ID token for %s from the metadata server of Google Cloud: %v", t.audience, err)
	}
	return map[string]string{header: "Bearer " + value, signedHeader: "Bearer " + value}, nil
}

// value returns a token. If a new token is due, value asks for one. While the last token is good,
// value returns the last token and asks in the background. Otherwise all waiting callers share one
// request. No caller waits for a metadata server that has just failed.
func (t *tokens) value(ctx context.Context) (string, error) {
	now := time.Now()
	last, pausing, err := t.look(now)
	usable := last.good(now, margin)
	switch {
	case last.good(now, renewBefore), usable && pausing:
		return last.value, nil
	case !usable && pausing && err != nil:
		return "", err
	}
	answer := t.asking.DoChan("", t.ask)
	if usable {
		return last.value, nil
	}
	select {
	case a := <-answer:
		if a.Err != nil {
			return "", a.Err
		}
		return a.Val.(token).value, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (t *tokens) look(now time.Time) (last token, pausing bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, now.Before(t.next), t.err
}

// ask requests a token. It uses a context of its own, because several callers may wait for its
// answer.
func (t *tokens) ask() (any, error) {
	if last, _, _ := t.look(time.Now()); last.good(time.Now(), renewBefore) {
		return last, nil // the token came between the caller's check and this one
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	got, err := t.fetch(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	t.tries++
	if err == nil {
		t.last = got
		if got.good(time.Now(), renewBefore) {
			t.tries = 0
		}
	}
	t.next = time.Time{}
	if t.tries > 0 {
		t.next = time.Now().Add(pauses.Base/2 + pauses.Delay(t.tries))
	}
	return got, err
}

// fetch asks for the full format, because only a token in that format has the email of the service
// account. The called service knows its caller by the email.
func (t *tokens) fetch(ctx context.Context) (token, error) {
	query := url.Values{"audience": {t.audience}, "format": {"full"}}
	answer, err := t.metadata.GetWithContext(ctx, suffix+"?"+query.Encode())
	if err != nil {
		return token{}, err
	}
	got, err := parse(answer)
	if err == nil {
		err = got.check(time.Now())
	}
	return got, err
}

// A token is a JWT. Its receiver verifies the signature.
type token struct {
	value   string
	expires time.Time
}

// parse reads the end of the token's lifetime from the token. It cannot assume that the token lives
// for an hour from the time of the answer, because the metadata server caches tokens, too.
func parse(value string) (token, error) {
	value = strings.TrimSpace(value)
	parts := strings.Split(value, ".")
	if len(parts) != 3 {
		return token{}, fmt.Errorf("its answer of %d bytes is no JWT", len(value))
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return token{}, errors.New("its answer is no JWT: the claims are not in base64url")
	}
	var read struct {
		Expires int64 `json:"exp"`
	}
	if err := json.Unmarshal(claims, &read); err != nil || read.Expires <= 0 {
		return token{}, errors.New("its answer is a JWT without the claim exp")
	}
	return token{value: value, expires: time.Unix(read.Expires, 0)}, nil
}

// good reports whether the token is still valid at the time now plus longer.
func (t token) good(now time.Time, longer time.Duration) bool {
	return t.expires.Sub(now) > longer
}

func (t token) check(now time.Time) error {
	if !t.good(now, margin) {
		return fmt.Errorf("its token ends at %s, and here it is %s", t.expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}
