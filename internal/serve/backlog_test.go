package serve_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"example.com/lockstep/internal/serve"
)

// stalled leaves all connections in the queue of the kernel, as a process does that gets no processor.
type stalled struct {
	*net.TCPListener
	closed chan struct{}
	once   *sync.Once
}

func (l stalled) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l stalled) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.TCPListener.Close()
}

// greeter returns a server that answers /hello, and whose drain begins at once.
func greeter() *serve.Server {
	s := newService(io.Discard)
	s.rest.Get("/hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") })
	server := s.server()
	server.Linger = time.Millisecond
	return server
}

// TestTheQueueOfTheListenerIsAnswered: to a client, its connection is accepted once the kernel has it.
func TestTheQueueOfTheListenerIsAnswered(t *testing.T) {
	t.Parallel()
	lis, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	server := greeter()
	ctx, drain := context.WithCancel(t.Context())
	var queued []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /hello HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		queued = append(queued, conn)
	}
	drain()
	if err := server.Run(ctx, stalled{lis, make(chan struct{}), new(sync.Once)}); err != nil {
		t.Errorf("Run: %v", err)
	}
	if conn, err := net.Dial("tcp", lis.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("after the drain a client is connected")
	}
	for _, conn := range queued {
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("a queued request: %v", err)
			continue
		}
		if body := readAll(t, answer); answer.StatusCode != http.StatusOK || body != "hi" || !answer.Close {
			t.Errorf("a queued request: %d %q, told to close: %t", answer.StatusCode, body, answer.Close)
		}
	}
}

// TestASharedListenerOutlivesTheDrain: a parent process may keep the listener for the next process, as [process.Instance]
// and a socket of systemd do. A connection that comes meanwhile waits for that process.
func TestASharedListenerOutlivesTheDrain(t *testing.T) {
	t.Parallel()
	parents, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parents.Close() })
	file, err := parents.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for process := range 2 {
		lis, err := net.FileListener(file)
		if err != nil {
			t.Fatal(err)
		}
		server := greeter()
		ctx, drain := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx, lis) }()
		if res, body := get(t, &http.Client{Transport: &http.Transport{}}, "http://"+parents.Addr().String()+"/hello"); res.StatusCode != 200 || body != "hi" {
			t.Errorf("process %d: %d %q", process, res.StatusCode, body)
		}
		drain()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}
