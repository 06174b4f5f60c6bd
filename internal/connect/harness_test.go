package connect

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcmetadata "google.golang.org/grpc/metadata"

	"example.com/lockstep/internal/porttest"
)

// host is the one that authtest's tokens of services are for.
const host = "video.example"

// google is a metadata server. It answers as the test says: with a token of a lifetime,
// or with something else.
type google struct {
	mu     sync.Mutex
	answer http.HandlerFunc
	asked  []string // audiences
}

// newGoogle makes one and points the process's environment to it, so the test cannot be
// parallel.
func newGoogle(t *testing.T, answer http.HandlerFunc) *google {
	t.Helper()
	g := &google{answer: answer}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	return g
}

func (g *google) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/computeMetadata/v1/"+suffix || r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "not the way to ask", http.StatusForbidden)
		return
	}
	g.mu.Lock()
	g.asked = append(g.asked, r.URL.Query().Get("audience"))
	answer := g.answer
	g.mu.Unlock()
	answer(w, r)
}

func (g *google) set(answer http.HandlerFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

func (g *google) audiences() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.asked...)
}

// lasting answers with tokens of that lifetime, each with its number. Like Google's, they
// name their account in the full format only.
func lasting(life time.Duration) http.HandlerFunc {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		n++
		email := ""
		if r.URL.Query().Get("format") == "full" {
			email = `"email": "catalog@p.iam.gserviceaccount.com", "email_verified": true, `
		}
		fmt.Fprintln(w, jwt(fmt.Sprintf(`{%s"aud": %q, "exp": %d, "n": %d}`, email, r.URL.Query().Get("audience"), time.Now().Add(life).Unix(), n)))
	}
}

func text(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func jwt(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + ".c2lnbmF0dXJl"
}

// callee is a service that records the metadata of its calls.
type callee struct {
	healthpb.UnimplementedHealthServer

	addr  string
	roots *x509.CertPool

	mu   sync.Mutex
	came []grpcmetadata.MD
}

// newCallee serves with TLS as host, or in plain text.
func newCallee(t *testing.T, secure bool) *callee {
	t.Helper()
	c := &callee{}
	var options []grpc.ServerOption
	if secure {
		var certificate tls.Certificate
		certificate, c.roots = selfSigned(t)
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}})))
	}
	options = append(options, grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		md, _ := grpcmetadata.FromIncomingContext(ctx)
		c.mu.Lock()
		c.came = append(c.came, md)
		c.mu.Unlock()
		return next(ctx, r)
	}))
	l := porttest.Listen(t)
	server := grpc.NewServer(options...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(l)
	t.Cleanup(server.Stop)
	c.addr = l.Addr().String()
	return c
}

func (c *callee) calls() []grpcmetadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.came
}

// dial connects to c for any addr, like a DNS of the test's own.
func (c *callee) dial(t *testing.T, addr string) healthpb.HealthClient {
	t.Helper()
	options, err := dialOptions(addr, c.roots)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// patience ends a test that would otherwise hang.
const patience = 2 * time.Minute

// call makes a call with a deadline.
func call(t *testing.T, client healthpb.HealthClient) error {
	t.Helper()
	return callFor(t, client, patience)
}

func callFor(t *testing.T, client healthpb.HealthClient, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
