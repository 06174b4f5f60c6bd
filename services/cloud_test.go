package services_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// videoHost is the host name of video in the cloud.
	videoHost = "video-abc123.a.run.app"
	// invoker is the signature of the tokens of catalog's service account.
	invoker = "Y2F0YWxvZw"
)

// cloud is a stand-in for Cloud Run and its machines between two services, with the
// callee behind it in plain text: TLS, tokens of the metadata server, and a proxy that
// lets in only callers that may invoke the service.
type cloud struct {
	env []string // of a process that runs there

	mute, revoked               atomic.Bool
	asked, admitted, turnedAway atomic.Int64
}

func newCloud(t testing.TB, behind string) *cloud {
	t.Helper()
	c := &cloud{}
	certificate, roots := selfSigned(t)
	front := httptest.NewUnstartedServer(c.checkCallers(behind))
	front.EnableHTTP2, front.TLS = true, &tls.Config{Certificates: []tls.Certificate{certificate}}
	front.StartTLS()
	t.Cleanup(front.Close)
	google := httptest.NewServer(http.HandlerFunc(c.token))
	t.Cleanup(google.Close)
	way := httptest.NewServer(tunnel(front.Listener.Addr().String()))
	t.Cleanup(way.Close)
	c.env = []string{
		"VIDEO_SERVICE_ADDR=" + videoHost + ":443", "HTTPS_PROXY=" + way.URL, "SSL_CERT_FILE=" + roots,
		"GCE_METADATA_HOST=" + strings.TrimPrefix(google.URL, "http://"),
	}
	return c
}

// token is the metadata server's answer to a request for the identity.
func (c *cloud) token(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/identity" || r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "not the way to ask", http.StatusForbidden)
		return
	}
	c.asked.Add(1)
	if c.mute.Load() {
		http.Error(w, "not yet", http.StatusNotFound)
		return
	}
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"aud":%q,"exp":%d}`, r.URL.Query().Get("audience"), time.Now().Add(time.Hour).Unix())
	fmt.Fprint(w, encode([]byte(`{"alg":"none"}`))+"."+encode([]byte(claims))+"."+invoker)
}

// checkCallers passes on the requests that carry a token for this service, without the
// token, and refuses the others.
func (c *cloud) checkCallers(behind string) http.Handler {
	plain := new(http.Protocols)
	plain.SetUnencryptedHTTP2(true)
	inside := &httputil.ReverseProxy{
		Transport:     &http.Transport{Protocols: plain},
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: behind})
			r.Out.Header.Del("X-Serverless-Authorization")
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.revoked.Load() || !forVideo(r.Header.Get("X-Serverless-Authorization")) {
			c.turnedAway.Add(1)
			http.Error(w, "your client does not have permission", http.StatusForbidden)
			return
		}
		c.admitted.Add(1)
		inside.ServeHTTP(w, r)
	})
}

func forVideo(bearer string) bool {
	parts := strings.Split(strings.TrimPrefix(bearer, "Bearer "), ".")
	if len(parts) != 3 || parts[2] != invoker {
		return false
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	return err == nil && bytes.Contains(claims, []byte(`"aud":"https://`+videoHost+`"`))
}

// tunnel is a stand-in for the network: videoHost is at addr, and no other host is
// reachable.
func tunnel(addr string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != videoHost+":443" {
			http.Error(w, "no way to "+r.Host, http.StatusBadGateway)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\n")
		join(conn, addr)
	}
}

// selfSigned is a certificate of videoHost, and a file of it for the clients that trust
// it.
func selfSigned(t testing.TB) (certificate tls.Certificate, roots string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{videoHost}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	roots = filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
