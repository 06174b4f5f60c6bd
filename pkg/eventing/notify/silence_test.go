package notify

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing/backoff"
)

// wire is a proxy to a server. While it is broken, listeners' connections stay
// open and receive nothing, as with a server that failed over silently, or with
// a transaction pooler.
type wire struct {
	net.Listener

	to     string
	mu     sync.Mutex
	broken bool
	listen int // how many connections have listened
}

// newWire returns url through a wire.
func newWire(t *testing.T, to string) (w *wire, through string) {
	t.Helper()
	lis := porttest.Listen(t)
	t.Cleanup(func() { _ = lis.Close() })
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	w = &wire{Listener: lis, to: u.Host}
	go w.serve()
	u.Host = lis.Addr().String()
	return w, u.String()
}

func (w *wire) serve() {
	for {
		client, err := w.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		go copyUntil(server, client, nil)
		go w.answer(client, server)
	}
}

// answer passes on the server's messages. While the wire is broken, it drops
// those after the answer to a LISTEN.
func (w *wire) answer(client, server net.Conn) {
	listening := false
	copyUntil(client, server, func(said []byte) []byte {
		w.mu.Lock()
		defer w.mu.Unlock()
		if listening && w.broken {
			return nil
		}
		before, _, found := bytes.Cut(said, []byte(listened))
		if listening || !found {
			return said
		}
		listening = true
		w.listen++
		if !w.broken {
			return said
		}
		// A notification may come with the answer. It is before or behind the last part of the answer.
		return append(bytes.Clone(before), listened+readyForQuery...)
	})
}

// The last parts of the server's answer to a LISTEN.
const (
	listened      = "LISTEN\x00"
	readyForQuery = "Z\x00\x00\x00\x05I"
)

// copyUntil copies the data as pass returns it (nil: all), and then closes both
// connections.
func copyUntil(to, from net.Conn, pass func([]byte) []byte) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		data := buffer[:n]
		if pass != nil {
			data = pass(data)
		}
		if len(data) > 0 {
			if _, err := to.Write(data); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) listened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listen
}

func (w *wire) setBroken(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = broken
}

const patience = 2 * time.Minute

// hasty runs a notifier on url with short pauses, so that it soon probes its connection.
func hasty(t *testing.T, db *pgtest.DB, url string) (b *Notifier, onNotify chan Notification) {
	t.Helper()
	b = New(db.Pool(t, url), "", "test", slog.New(slog.DiscardHandler))
	return b, run(t, b, soon)
}

// soon is a short pause.
var soon = backoff.Policy{Base: 10 * time.Millisecond, Cap: 10 * time.Millisecond}

// run runs b with short pauses besides noDelivery.
func run(t *testing.T, b *Notifier, noDelivery backoff.Policy) (onNotify chan Notification) {
	t.Helper()
	onNotify = make(chan Notification, 1000)
	b.pauses = pauses{silence: 50 * time.Millisecond, answer: 500 * time.Millisecond, retry: soon, noDelivery: noDelivery}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx, func(n Notification) { onNotify <- n }) }()
	t.Cleanup(func() { stop(); <-ended })
	return onNotify
}

// changed waits until b has started or stopped receiving.
func changed(t *testing.T, onNotify chan Notification, when string) {
	t.Helper()
	select {
	case <-onNotify:
	case <-time.After(patience):
		t.Fatalf("nothing changes %s", when)
	}
}

// becomes waits until b, after a change, receives or does not. On a busy machine a probe may
// be late, and the connection is then replaced in between.
func (n *Notifier) becomes(t *testing.T, connected bool, onNotify chan Notification, when string) {
	t.Helper()
	for again := true; again; again = n.Connected() != connected {
		changed(t, onNotify, when)
	}
}

// A failover that closes no connection leaves a listener that receives nothing.
func TestASilentServerIsNoticed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	w, url := newWire(t, db.URL)
	b, onNotify := hasty(t, db, url)
	b.becomes(t, true, onNotify, "at first")
	w.setBroken(true)
	b.becomes(t, false, onNotify, "when the connection went silent")
	w.setBroken(false)
	b.becomes(t, true, onNotify, "when new connections work")
}

// A connection that is silent because nothing happens is probed after each silence, and stays.
func TestAQuietConnectionIsProbedAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n, onNotify := New(db.Pool(t, db.URL), "", "test", slog.New(slog.DiscardHandler)), make(chan Notification, 1000)
	n.pauses.silence, n.pauses.answer = 10*time.Millisecond, 10*time.Second
	witness, err := New(db.Pool(t, db.URL), "", "test", slog.New(slog.DiscardHandler)).connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer witness.Close(t.Context())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.listenOnce(ctx, func(n Notification) { onNotify <- n }) }()
	for range 4 {
		if _, err := next(t.Context(), witness, patience); err != nil {
			t.Fatal(err)
		}
	}
	if len(ended) != 0 || len(onNotify) != 1 {
		t.Errorf("%d notifications, or the connection has ended", len(onNotify))
	}
	stop()
	<-ended
}

// A process that has received notifications is behind no pooler. A server that stalls when it is back is tried
// again soon.
func TestAServerThatStallsOnceMoreIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	w, url := newWire(t, db.URL)
	n := New(db.Pool(t, url), "", "test", slog.New(slog.DiscardHandler))
	onNotify := run(t, n, backoff.Policy{Base: 24 * time.Hour, Cap: 24 * time.Hour})
	n.becomes(t, true, onNotify, "at first")
	listened := w.listened()
	w.setBroken(true)
	n.becomes(t, false, onNotify, "when the connection went silent")
	// A second connection shows that the first one has received nothing.
	pgtest.Until(t, "it is tried again", func() bool { return w.listened() >= listened+2 })
	w.setBroken(false)
	n.becomes(t, true, onNotify, "when new connections work")
}

// The database is away when the process starts. That is no sign of a pooler, so the process soon tries again.
func TestADatabaseThatIsAwayIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	cfg := pgtest.Settings(t, pgtest.New(t).URL)
	var tried atomic.Bool
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !tried.Swap(true) {
			return nil, errors.New("no route to host")
		}
		return dial(ctx, network, addr)
	}
	n := New(pgtest.Open(t, cfg), "", "test", slog.New(slog.DiscardHandler))
	n.becomes(t, true, run(t, n, backoff.Policy{Base: 24 * time.Hour, Cap: 24 * time.Hour}), "when the database is back")
}

// A stall during the first connection is not taken for a pooler for ever.
func TestAConnectionWithoutNotificationsIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	w, url := newWire(t, db.URL)
	w.setBroken(true)
	b, onNotify := hasty(t, db, url)
	if err := b.listenOnce(t.Context(), nil); err != errNoDelivery { //nolint:errorlint // not wrapped
		t.Fatalf("%v, want errNoDelivery", err)
	}
	w.setBroken(false)
	changed(t, onNotify, "when the stall is over")
	other, _ := hasty(t, db, db.URL)
	other.Publish("a")
	changed(t, onNotify, "when another one rings")
}

// A URL to listen at is none of a pooler, so a connection to it is tried again soon.
func TestAURLToListenAtIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	w, url := newWire(t, db.URL)
	w.setBroken(true)
	n := New(db.Pool(t, db.URL), url, "test", slog.New(slog.DiscardHandler))
	onNotify := run(t, n, backoff.Policy{Base: 24 * time.Hour, Cap: 24 * time.Hour})
	if err := n.listenOnce(t.Context(), nil); err != errNoDelivery { //nolint:errorlint // not wrapped
		t.Fatalf("%v, want errNoDelivery", err)
	}
	w.setBroken(false)
	n.becomes(t, true, onNotify, "when the stall is over")
}

// Behind a transaction pooler a notifier sends and does not receive. If the URL shows the
// pooler, the notifier does not try to listen: a LISTEN would stay behind in a session that
// other clients get, with notifications that no client reads.
func TestBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	unconnected, nothing := hasty(t, db, db.Pooled(t, db.URL))
	gaveUp := make(chan struct{})
	go func() { unconnected.listen(t.Context(), nil); close(gaveUp) }()
	select {
	case <-gaveUp:
	case <-time.After(patience):
		t.Error("it tries to listen")
	}
	if err := unconnected.listenOnce(t.Context(), nil); err != errNoDelivery { //nolint:errorlint // not wrapped
		t.Errorf("%v, want errNoDelivery", err)
	}
	_, onNotify := hasty(t, db, db.URL)
	changed(t, onNotify, "at first")
	unconnected.Publish("a")
	changed(t, onNotify, "when the pooled one rings")
	if New(db.Pool(t, db.Pooled(t, db.URL)), db.URL, "test", slog.New(slog.DiscardHandler)).pooled() {
		t.Error("it does not listen at a URL without the pooler")
	}
	if unconnected.Connected() || len(nothing) > 0 {
		t.Error("notifications arrive through a pooler")
	}
}

// Before the migrations no schema of the search_path exists. The error says so.
func TestANotifierWithoutASchema(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	n := New(pg.Pool(t, pg.URL+"&search_path=nowhere"), "", "test", slog.New(slog.DiscardHandler))
	if conn, err := n.connect(t.Context()); !errors.Is(err, errNoSchema) {
		t.Errorf("%v, %v", conn, err)
	}
}
