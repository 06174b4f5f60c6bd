package connect

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/localpubsub"
)

// TestAFrozenConnectionIsReplaced: the network forgets the connections to the broker, and takes new
// ones. Publishing and receiving go on after the time of a ping, with a local broker and with Google's.
func TestAFrozenConnectionIsReplaced(t *testing.T) {
	usual := keepAlive
	t.Cleanup(func() { keepAlive = usual })
	keepAlive.Time, keepAlive.Timeout = 10*time.Second, time.Second // gRPC takes no shorter Time

	plain := newLink(t, nil)
	t.Setenv(emulatorHost, plain.addr)
	local := newClient(t, PubSubOptions{})

	certificate, roots := selfSigned(t)
	secure := newLink(t, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
	t.Setenv(emulatorHost, "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", serviceAccount(t))
	trusting := credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12})
	google := newClient(t, PubSubOptions{Endpoint: secure.addr, Dial: []grpc.DialOption{grpc.WithTransportCredentials(trusting)}})

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var both sync.WaitGroup
	for name, c := range map[string]struct {
		client *pubsub.Client
		link   *link
	}{"local": {local, plain}, "Google's": {google, secure}} {
		both.Go(func() { survives(ctx, t, name, c.client, c.link) })
	}
	both.Wait()
}

func survives(ctx context.Context, t *testing.T, name string, client *pubsub.Client, l *link) {
	t.Helper()
	if _, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/p/topics/frozen"}); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if _, err := client.SubscriptionAdminClient.CreateSubscription(ctx,
		&pubsubpb.Subscription{Name: "projects/p/subscriptions/frozen", Topic: "projects/p/topics/frozen"}); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	publisher := client.Publisher("frozen")
	defer publisher.Stop()
	receiving, stop := context.WithCancel(ctx)
	came := make(chan string, 10)
	var running sync.WaitGroup
	running.Go(func() {
		err := client.Subscriber("frozen").Receive(receiving, func(_ context.Context, m *pubsub.Message) {
			came <- string(m.Data)
			m.Ack()
		})
		if err != nil {
			t.Errorf("%s: receive: %v", name, err)
		}
	})
	defer running.Wait()
	defer stop()
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, word := range []string{"before", "after"} {
		if word == "after" {
			l.freeze()
		}
		start := time.Now()
		if _, err := publisher.Publish(within, &pubsub.Message{Data: []byte(word)}).Get(within); err != nil {
			t.Errorf("%s: publish %q: %v", name, word, err)
			return
		}
		published := time.Since(start)
		for got := ""; got != word; {
			select {
			case got = <-came:
			case <-within.Done():
				t.Errorf("%s: %q was published after %s, and not received within a minute", name, word, published)
				return
			}
		}
		t.Logf("%s: %q was published after %s, and received after %s", name, word, published, time.Since(start))
	}
}

// link leads to a local Pub/Sub, with TLS if the test says so.
type link struct {
	addr string

	mu      sync.Mutex
	servers []net.Conn // the connections to the server that are not frozen
}

func newLink(t *testing.T, secure *tls.Config) *link {
	t.Helper()
	server, err := localpubsub.Start(localpubsub.Options{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	listener := porttest.Listen(t)
	t.Cleanup(func() { _ = listener.Close() })
	l := &link{addr: listener.Addr().String()}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server.Addr())
			if err != nil {
				_ = from.Close()
				continue
			}
			t.Cleanup(func() { _ = from.Close(); _ = to.Close() })
			l.mu.Lock()
			l.servers = append(l.servers, to)
			l.mu.Unlock()
			go func() {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}()
			// The client's end stays open: the client hears nothing of the end of the server's.
			go func() { _, _ = io.Copy(from, to) }()
		}
	}()
	return l
}

// freeze ends the connections for the server. The clients get no answers any more.
func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, to := range l.servers {
		_ = to.Close()
	}
	l.servers = nil
}

// serviceAccount is a file of credentials that need no server: the client signs its tokens itself.
func serviceAccount(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "video@p.iam.gserviceaccount.com", "private_key_id": "k",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"token_uri":   "http://127.0.0.1:1", // leads nowhere
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
