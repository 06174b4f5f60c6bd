package connect

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/porttest"
)

func TestTokenGoesWithEachCall(t *testing.T) {
	g := newGoogle(t, lasting(time.Hour))
	c := newCallee(t, true)
	client := c.dial(t, strings.ToUpper(host)+":443")
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			if err := call(t, client); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if err := call(t, client); err != nil {
		t.Error(err)
	}
	if asked := g.audiences(); !slices.Equal(asked, []string{"https://" + host}) {
		t.Errorf("asked for tokens for %q, want one for the service", asked)
	}
	if n := len(c.calls()); n != 51 {
		t.Errorf("%d calls came, want 51", n)
	}
	for _, md := range c.calls() {
		sent := md.Get(header)
		if !slices.Equal(sent, md.Get(signedHeader)) || len(sent) != 1 || !strings.HasPrefix(sent[0], "Bearer ey") || strings.ContainsAny(sent[0], "\r\n") || len(md.Get("authorization")) > 0 {
			t.Errorf("a call came with %v", md)
		}
	}
}

// Between a caller's check of the last token and its turn to ask, another caller's
// answer may have come.
func TestTokenOfAConcurrentCallerIsUsed(t *testing.T) {
	g := newGoogle(t, lasting(time.Hour))
	both := newTokens("https://" + host)
	first, err := both.ask()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := both.ask(); err != nil || second != first || len(g.audiences()) != 1 {
		t.Errorf("%v and %v, %v; asked %d times", first, second, err, len(g.audiences()))
	}
}

// TestTokenIsRenewedBeforeItEnds: while the second token is being fetched, calls go on
// with the first.
func TestTokenIsRenewedBeforeItEnds(t *testing.T) {
	g := newGoogle(t, lasting(renewBefore-time.Minute))
	c := newCallee(t, true)
	client := c.dial(t, host+":443")
	first := sent(t, c, client)

	asked, release := make(chan struct{}, 1), make(chan struct{})
	fresh := lasting(time.Hour)
	g.set(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		fresh(w, r)
	})
	for waiting := true; waiting; {
		if again := sent(t, c, client); again != first {
			t.Fatalf("the token changed to %s before there was another", again)
		}
		select {
		case <-asked:
			waiting = false
		default:
		}
	}
	close(release)
	pgtest.Until(t, "the new token", func() bool { return sent(t, c, client) != first })
	before := len(g.audiences())
	second := sent(t, c, client)
	for range 20 {
		if again := sent(t, c, client); again != second {
			t.Errorf("the token changed to %s", again)
		}
	}
	if after := len(g.audiences()); after != before {
		t.Errorf("a fresh token was asked for %d times more", after-before)
	}
}

// TestRenewalThatFails: the calls use a token that is still valid, and the server is
// not asked with each of them.
func TestRenewalThatFails(t *testing.T) {
	g := newGoogle(t, lasting(renewBefore-time.Minute))
	c := newCallee(t, true)
	client := c.dial(t, host+":443")
	first := sent(t, c, client)
	g.set(text(http.StatusNotFound, "gone"))
	pgtest.Until(t, "a renewal", func() bool { return sent(t, c, client) == first && len(g.audiences()) >= 2 })
	for range 100 {
		if again := sent(t, c, client); again != first {
			t.Errorf("the token changed to %s", again)
		}
	}
	if n := len(g.audiences()); n > 50 {
		t.Errorf("%d questions for 100 calls", n)
	}
}

func TestMetadataServerFails(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"broken":             {text(http.StatusInternalServerError, "teapot"), "teapot"},
		"no service account": {text(http.StatusNotFound, ""), "not defined"},
		"empty":              {text(http.StatusOK, ""), "no JWT"},
		"a page":             {text(http.StatusOK, "<html>.</html>."), "no JWT"},
		"no end":             {text(http.StatusOK, jwt(`{"aud": "x"}`)), "exp"},
		"a token that ended": {lasting(-time.Second), "ends at"},
		"one about to end":   {lasting(margin / 2), "ends at"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGoogle(t, c.answer)
			callee := newCallee(t, true)
			client := callee.dial(t, host+":443")
			err := call(t, client)
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "ID token for https://"+host+" from the metadata server") {
				t.Errorf("%v, want UNAVAILABLE with %q", err, c.want)
			}
			for range 100 {
				if call(t, client) == nil {
					t.Error("a call went through")
				}
			}
			if n := len(callee.calls()); n != 0 {
				t.Errorf("%d calls came without a token", n)
			}
			if n := len(g.audiences()); n > 50 {
				t.Errorf("%d questions for 101 calls: a call asks again although an earlier call has the answer", n)
			}
			g.set(lasting(time.Hour))
			pgtest.Until(t, "it is back", func() bool { return call(t, client) == nil })
		})
	}
}

// TestMetadataServerHangs: a caller waits no longer than its own deadline, and the
// callers after it get the first one's error at once.
func TestMetadataServerHangs(t *testing.T) {
	hang := make(chan struct{})
	g := newGoogle(t, func(http.ResponseWriter, *http.Request) { <-hang })
	defer close(hang)
	c := newCallee(t, true)
	client := c.dial(t, host+":443")
	if err := callFor(t, client, 100*time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("an impatient call: %v", err)
	}
	if err := call(t, client); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "metadata server") {
		t.Errorf("a patient call: %v", err)
	}
	if n := len(g.audiences()); n != 1 {
		t.Errorf("%d questions to a server that hangs, want one for both", n)
	}
	waiting := newTokens("https://" + host)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := waiting.value(gone)
	if _, _, learnt := waiting.look(time.Now()); !errors.Is(err, context.Canceled) || learnt != nil {
		t.Errorf("a caller who has gone waited for %v, got %v", learnt, err)
	}
	g.set(lasting(time.Hour))
	pgtest.Until(t, "it is back", func() bool { return call(t, client) == nil })
}

func TestMetadataServerIsAbsent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GCE_METADATA_HOST", l.Addr().String())
	l.Close()
	err = call(t, newCallee(t, true).dial(t, host+":443"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "metadata server") {
		t.Errorf("%v, want UNAVAILABLE that names the metadata server", err)
	}
}

func TestOtherPortsGetNoToken(t *testing.T) {
	g := newGoogle(t, lasting(time.Hour))
	c := newCallee(t, false)
	if err := call(t, c.dial(t, host+":8080")); err != nil {
		t.Fatal(err)
	}
	if md := c.calls()[0]; len(md.Get(header))+len(md.Get(signedHeader)) > 0 || len(g.audiences()) > 0 {
		t.Errorf("the call came with %v, asked for %v", md, g.audiences())
	}
}

// TestNoTokenInPlainText: a server that answers on port 443 without TLS, or with an
// untrusted certificate, gets no token.
func TestNoTokenInPlainText(t *testing.T) {
	g := newGoogle(t, lasting(time.Hour))
	if _, err := grpc.NewClient(host+":443", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(newTokens("https://"+host))); err == nil {
		t.Error("a connection in plain text took the tokens")
	}
	if _, err := newTokens("https://" + host).GetRequestMetadata(t.Context()); status.Code(err) != codes.Internal {
		t.Errorf("without a connection: %v", err)
	}

	l := porttest.Listen(t)
	defer l.Close()
	heard := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		var all bytes.Buffer
		conn.Write([]byte("HTTP/1.1 400 no TLS here\r\n\r\n"))
		io.Copy(&all, conn)
		conn.Close()
		heard <- all.Bytes()
	}()
	plain := &callee{addr: l.Addr().String()}
	if err := call(t, plain.dial(t, host+":443")); err == nil {
		t.Error("a call was answered without TLS")
	}
	const handshake = 0x16
	if said := <-heard; len(said) == 0 || said[0] != handshake || bytes.Contains(said, []byte("Bearer")) || bytes.Contains(said, []byte(header)) {
		t.Errorf("in plain text it said %q", said)
	}

	other := newCallee(t, true)
	_, other.roots = selfSigned(t)
	if err := call(t, other.dial(t, host+":443")); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a stranger's certificate: %v", err)
	}
	if n := len(other.calls()) + len(g.audiences()); n != 0 {
		t.Errorf("%d calls or questions", n)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"", "host", "443", "a:b:443"} {
		if _, err := dialOptions(addr, nil); err == nil || !strings.Contains(err.Error(), "address") {
			t.Errorf("%q: %v", addr, err)
		}
	}
	for given, want := range map[string]string{"Video.Example": "https://video.example", "2001:db8::1": "https://[2001:db8::1]"} {
		if got := audience(given); got != want {
			t.Errorf("audience of %s is %s, want %s", given, got, want)
		}
	}
}

// sent makes a call, and returns the metadata that arrived with it.
func sent(t *testing.T, c *callee, client healthpb.HealthClient) string {
	t.Helper()
	if err := call(t, client); err != nil {
		t.Fatal(err)
	}
	calls := c.calls()
	return calls[len(calls)-1].Get(header)[0]
}
