package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/pkg/client"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// network is a network in memory. The packets of its connections get lost once they are cut.
type network struct {
	*bufconn.Listener
	mu    sync.Mutex
	conns []*conn
}

type conn struct {
	net.Conn
	cut atomic.Bool
}

func (c *conn) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	inner, err := n.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &conn{Conn: inner}
	n.conns = append(n.conns, c)
	return c, nil
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.cut.Store(true)
	}
}

// flaky has the answers of both services. Each third call succeeds, until the services are away. While
// they are silent, no call is answered.
type flaky struct {
	calls  atomic.Int64
	away   atomic.Bool
	silent atomic.Bool
}

func (f *flaky) answer() error {
	if f.calls.Add(1)%3 != 0 || f.away.Load() {
		return status.Error(codes.Unavailable, "away")
	}
	return nil
}

// serve is the handler of every method.
func (f *flaky) serve(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
		return err
	}
	if f.silent.Load() {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	if err := f.answer(); err != nil {
		return err
	}
	return stream.SendMsg(new(emptypb.Empty))
}

// onNetwork runs a test with a client of flaky services, in fake time.
func onNetwork(t *testing.T, test func(t *testing.T, c *client.Client, n *network, f *flaky)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, f := &network{Listener: bufconn.Listen(1 << 16)}, new(flaky)
		server := grpc.NewServer(grpc.UnknownServiceHandler(f.serve))
		go func() { _ = server.Serve(n) }() // ends with an error when it is stopped
		defer server.Stop()
		c, err := client.New(client.Options{
			Video: "127.0.0.1:1", Catalog: "127.0.0.1:1", DialOptions: []grpc.DialOption{grpc.WithContextDialer(n.dial)},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		test(t, c, n, f)
	})
}

// Reads are repeated, and writes are not, because they may have been carried out.
func TestReadsAreRepeated(t *testing.T) {
	t.Parallel()
	onNetwork(t, func(t *testing.T, c *client.Client, _ *network, f *flaky) {
		if _, err := c.Catalog.GetVideo(t.Context(), &catalogv1.GetVideoRequest{}); err != nil {
			t.Errorf("a read of catalog: %v", err)
		}
		if _, err := c.Videos.GetVideo(t.Context(), &videov1.GetVideoRequest{}); err != nil {
			t.Errorf("a read of video: %v", err)
		}
		if _, err := c.Videos.DeleteVideo(t.Context(), &videov1.DeleteVideoRequest{}); status.Code(err) != codes.Unavailable || f.calls.Load() != 7 {
			t.Errorf("a write: %v after %d calls in all, want UNAVAILABLE after 7", err, f.calls.Load())
		}
	})
}

// The policy of retries names each read of each service, and no write.
func TestEachReadIsRepeated(t *testing.T) {
	t.Parallel()
	for _, service := range reflect.VisibleFields(reflect.TypeFor[client.Client]()) {
		for n := 0; service.IsExported() && n < service.Type.NumMethod(); n++ {
			onNetwork(t, func(t *testing.T, c *client.Client, _ *network, f *flaky) {
				f.away.Store(true)
				method, want := service.Type.Method(n), int64(1)
				if strings.HasPrefix(method.Name, "Get") || strings.HasPrefix(method.Name, "List") {
					want = 3
				}
				reflect.ValueOf(c).Elem().FieldByIndex(service.Index).Method(n).Call([]reflect.Value{
					reflect.ValueOf(t.Context()), reflect.New(method.Type.In(1).Elem()),
				})
				if got := f.calls.Load(); got != want {
					t.Errorf("%s.%s is called %d times, want %d", service.Name, method.Name, got, want)
				}
			})
		}
	}
}

// A service that is away for long gets hardly more calls than the program makes. When it is back, reads
// are repeated again.
func TestAnOutageIsNotMadeWorse(t *testing.T) {
	t.Parallel()
	onNetwork(t, func(t *testing.T, c *client.Client, _ *network, f *flaky) {
		f.away.Store(true)
		const reads = 50
		for range reads {
			if _, err := c.Catalog.GetVideo(t.Context(), &catalogv1.GetVideoRequest{}); status.Code(err) != codes.Unavailable {
				t.Fatalf("a read in the outage: %v", err)
			}
		}
		if got := f.calls.Load(); got > reads+10 {
			t.Errorf("%d reads were %d calls", reads, got)
		}
		f.away.Store(false)
		for range 2 * reads {
			f.calls.Store(2) // the next call succeeds
			if _, err := c.Catalog.GetVideo(t.Context(), &catalogv1.GetVideoRequest{}); err != nil {
				t.Fatalf("a read after the outage: %v", err)
			}
		}
		f.calls.Store(0)
		if _, err := c.Catalog.GetVideo(t.Context(), &catalogv1.GetVideoRequest{}); err != nil {
			t.Errorf("long after the outage: %v after %d calls, want a read that is repeated", err, f.calls.Load())
		}
	})
}

// A host that vanishes takes its connections with it, without a sign. The calls of half a minute may
// fail, and no later ones.
func TestADeadConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	onNetwork(t, func(t *testing.T, c *client.Client, n *network, _ *flaky) {
		get := func() error {
			_, err := c.Catalog.GetVideo(t.Context(), &catalogv1.GetVideoRequest{})
			return err
		}
		if err := get(); err != nil {
			t.Fatal(err)
		}
		n.cut()
		cutAt := time.Now()
		for get() != nil {
			if took := time.Since(cutAt); took > time.Minute {
				t.Fatalf("no call has succeeded for %s", took)
			}
		}
	})
}

// A program that sets no deadline does not wait for ever. A deadline that it sets counts, also a later one.
func TestACallWithoutADeadlineEnds(t *testing.T) {
	t.Parallel()
	onNetwork(t, func(t *testing.T, c *client.Client, _ *network, f *flaky) {
		f.silent.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		defer time.AfterFunc(time.Hour, cancel).Stop()
		ends := func(ctx context.Context, want time.Duration) {
			began := time.Now()
			_, err := c.Catalog.GetVideo(ctx, &catalogv1.GetVideoRequest{})
			if took := time.Since(began); status.Code(err) != codes.DeadlineExceeded || took != want {
				t.Errorf("a call ended after %s: %v, want DEADLINE_EXCEEDED after %s", took, err, want)
			}
		}
		ends(ctx, client.DefaultTimeout)
		patient, end := context.WithTimeout(ctx, 2*client.DefaultTimeout)
		defer end()
		ends(patient, 2*client.DefaultTimeout)
	})
}

// deletes calls DeleteVideo as a client with the options o does. It returns the number of calls that reach a server
// without TLS, and the error of the call.
func deletes(t *testing.T, o client.Options) (calls int64, err error) {
	t.Helper()
	lis, f := bufconn.Listen(1<<16), new(flaky)
	server := grpc.NewServer(grpc.UnknownServiceHandler(f.serve))
	go func() { _ = server.Serve(lis) }() // ends with an error when it is stopped
	defer server.Stop()
	o.Video, o.Catalog = "127.0.0.1:1", "127.0.0.1:1"
	o.DialOptions = append(o.DialOptions,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Videos.DeleteVideo(t.Context(), &videov1.DeleteVideoRequest{})
	return f.calls.Load(), err
}

// A call is not made without the user's token.
func TestACallWithoutItsTokenIsNotMade(t *testing.T) {
	t.Parallel()
	calls, err := deletes(t, client.Options{Token: func(context.Context) (string, error) { return "", errors.New("signed out") }})
	if err == nil || !strings.Contains(err.Error(), "signed out") || calls > 0 {
		t.Errorf("%d calls are made: %v", calls, err)
	}
}

// A further option does not take the connection's security away, so a token never travels in plain text.
func TestOptionsLeaveTheSecurity(t *testing.T) {
	t.Parallel()
	calls, err := deletes(t, client.Options{
		TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Token: func(context.Context) (string, error) { return "t", nil },
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	if err == nil || calls > 0 {
		t.Errorf("a server without TLS got %d calls: %v", calls, err)
	}
}
