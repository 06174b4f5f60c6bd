package connect

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"

	"example.com/lockstep/internal/porttest"
)

const topic = "projects/p/topics/t"

func TestLocalBrokerWinsOverEndpoint(t *testing.T) {
	server := pstest.NewServer()
	defer server.Close()
	t.Setenv(emulatorHost, server.Addr)
	client := newClient(t, PubSubOptions{Endpoint: "192.0.2.1:443"}) // leads nowhere
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	publisher := client.Publisher("t")
	defer publisher.Stop()
	if _, err := publisher.Publish(ctx, &pubsub.Message{Data: []byte("x")}).Get(ctx); err != nil {
		t.Fatal(err)
	}
	if got := len(server.Messages()); got != 1 {
		t.Errorf("the local broker has %d messages, want 1", got)
	}
}

func TestEndpointIsReachedWithTLS(t *testing.T) {
	l := porttest.Listen(t)
	defer l.Close()
	t.Setenv(emulatorHost, "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", someCredentials(t))
	client := newClient(t, PubSubOptions{Endpoint: l.Addr().String()})
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		// It fails when the test has ended the context.
		_, _ = client.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: topic})
	}()
	defer func() { cancel(); <-asked }()

	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("the client went elsewhere: %v", err)
	}
	defer conn.Close()
	const handshake = 0x16 // the first byte of every TLS connection
	first := make([]byte, 1)
	if _, err := conn.Read(first); err != nil || first[0] != handshake {
		t.Errorf("connection begins with %#x, %v, want a TLS handshake", first[0], err)
	}
}

func TestWarnOfOrder(t *testing.T) {
	for _, c := range []struct {
		emulator, endpoint string
		want               bool
	}{{"", "", true}, {"", "europe-west1-pubsub.googleapis.com:443", false}, {"127.0.0.1:1", "", false}} {
		t.Setenv(emulatorHost, c.emulator)
		var log bytes.Buffer
		PubSubOptions{Endpoint: c.endpoint}.WarnOfOrder(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Contains(log.String(), "set PUBSUB_ENDPOINT"); got != c.want {
			t.Errorf("emulator %q, endpoint %q: %q", c.emulator, c.endpoint, log.String())
		}
	}
}

func newClient(tb testing.TB, opts PubSubOptions) *pubsub.Client {
	tb.Helper()
	client, err := NewPubSub(tb.Context(), "p", opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { client.Close() })
	return client
}

func someCredentials(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "credentials.json")
	text := `{"type": "authorized_user", "client_id": "c", "client_secret": "none", "refresh_token": "none"}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
