package video

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/txn"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/engagement"
)

// everyone is the caller of tests that are not about identity.
var everyone = auth.Principal{Kind: auth.Everyone, Tenant: eventing.DefaultTenant}

func TestMain(m *testing.M) { pairtest.Main(m) }

// wakeups stands for the relay of another process. It has one value for each wake-up, up to its capacity.
type wakeups chan struct{}

func (wakeups) Handover() *outbox.Handover { return nil }

func (w wakeups) Wake() { w <- struct{}{} }

// api is the service on a port and a database of its own, without the relay: events
// stay in the outbox, where tests read them.
type api struct {
	testing.TB
	service     *Service
	engagements *engagement.Service
	db          *pgxpool.Pool // as the service
	admin       *pgxpool.Pool
	rpc         videov1.VideoServiceClient
	conn        *grpc.ClientConn
	routes      chi.Routes
	server      *serve.Server
	engage      videov1.EngagementServiceClient
	replica     replicationv1.ReplicationServiceClient
	url         string
	wakeups     wakeups
}

func newAPI(tb testing.TB) *api {
	tb.Helper()
	return newAPIFor(tb, auth.Open())
}

// newAPIFor is newAPI for callers that are not Everyone.
func newAPIFor(tb testing.TB, callers *auth.Authenticator) *api {
	tb.Helper()
	db := pairtest.New(tb)
	a := &api{TB: tb, admin: db.Pool(tb, db.Admin), wakeups: make(wakeups, 10_000)}
	var err error
	if a.db, err = connect.OpenPool(tb.Context(), db.VideoURL); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(a.db.Close)
	all := newServices(a.db, a.wakeups)
	a.service = all.videos
	a.engagements = all.engagements

	log := slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	health := serve.NewHealth(log)
	guard := serve.NewGuard(access, callers, serve.Options{})
	router := serve.NewRouter(log, health, guard)
	rpc := serve.NewGRPC(log, guard)
	all.register(router, rpc, log)
	rpc.Reflect()
	server := serve.New(log, router, rpc, health)
	server.Linger = time.Millisecond

	lis := porttest.Listen(tb)
	a.url = "http://" + lis.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	a.conn, a.routes, a.server = conn, router, server
	a.rpc = videov1.NewVideoServiceClient(conn)
	a.engage = videov1.NewEngagementServiceClient(conn)
	a.replica = replicationv1.NewReplicationServiceClient(conn)
	tb.Cleanup(func() {
		_ = conn.Close()
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("server: %v", err)
		}
	})
	return a
}

// reply is an answer over REST.
type reply struct {
	Status int
	Header http.Header
	Body   map[string]any
	Raw    []byte
}

// field is a number or text of the body.
func (r reply) field(name string) string { return fmt.Sprint(r.Body[name]) }

// call sends body, a string as it is or anything else as JSON, with headers
// given as name, value, name, value.
func (a *api) call(method, path string, body any, headers ...string) reply {
	a.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = bytes.NewReader([]byte(b))
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			a.Fatal(err)
		}
		reader = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(a.Context(), method, a.url+path, reader)
	if err != nil {
		a.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = append(req.Header[headers[i]], headers[i+1])
	}
	if reader != nil && req.Header["Content-Type"] == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return a.send(req)
}

func (a *api) send(req *http.Request) reply {
	a.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.Fatal(err)
	}
	defer resp.Body.Close()
	r := reply{Status: resp.StatusCode, Header: resp.Header}
	if r.Raw, err = io.ReadAll(resp.Body); err != nil {
		a.Fatal(err)
	}
	// Versions are read exactly; not every answer is JSON.
	dec := json.NewDecoder(bytes.NewReader(r.Raw))
	dec.UseNumber()
	_ = dec.Decode(&r.Body)
	return r
}

// draft is a good body of POST.
func draft(change func(map[string]any)) map[string]any {
	d := map[string]any{
		"uploader_id": uuid.NewString(), "title": "Pompeii", "description": "line one\nline two",
		"duration_seconds": 61, "published_at": "2026-03-04T05:06:07.123456Z",
	}
	if change != nil {
		change(d)
	}
	return d
}

// create stores a video over REST.
func (a *api) create() Video {
	a.Helper()
	r := a.call("POST", "/v1/videos", draft(nil))
	if r.Status != http.StatusCreated {
		a.Fatalf("create: %d %s", r.Status, r.Raw)
	}
	var v Video
	if err := json.Unmarshal(r.Raw, &v); err != nil {
		a.Fatal(err)
	}
	v.Epoch = 1 // the JSON has it in the token only
	return v
}

func path(v Video) string { return "/v1/videos/" + v.ID.String() }

// rows counts the rows that a write can leave behind.
type rows struct {
	Videos, Outbox, Keys int
	Engagements          int
}

func (a *api) rows() rows {
	a.Helper()
	found, _ := a.admin.Query(a.Context(), `
		SELECT (SELECT count(*) FROM video.videos) AS videos,
		       (SELECT count(*) FROM video.engagements) AS engagements,
		       (SELECT count(*) FROM video.outbox) AS outbox,
		       (SELECT count(*) FROM video.idempotency_keys) AS keys`)
	n, err := pgx.CollectExactlyOneRow(found, pgx.RowToStructByName[rows])
	if err != nil {
		a.Fatal(err)
	}
	return n
}

// videoRows are videos as a replica reads them, with tombstones.
func (a *api) videoRows(ids ...string) *replicationv1.GetVideoRowsResponse {
	a.Helper()
	resp, err := a.replica.GetVideoRows(a.Context(), &replicationv1.GetVideoRowsRequest{VideoIds: ids})
	if err != nil {
		a.Fatal(err)
	}
	return resp
}

// only is the one of rows.
func only[T any](tb testing.TB, rows []T) T {
	tb.Helper()
	if len(rows) != 1 {
		tb.Fatalf("%d rows, want one: %v", len(rows), rows)
	}
	return rows[0]
}

// exec changes the database without the service's knowledge.
func (a *api) exec(sql string, args ...any) {
	a.Helper()
	pgtest.Exec(a, a.admin, sql, args...)
}

// outboxRow is an event as the relay finds it, together with its decoded payload.
type outboxRow struct {
	ID          uuid.UUID
	Type        string
	AggregateID string
	Aggregate   string
	Version     int64
	Schema      int
	OccurredAt  time.Time
	Epoch       int64
	Payload     []byte
	Envelope    *eventsv1.Event
}

// events returns the outbox of v in version order.
func (a *api) events(v Video) []outboxRow {
	a.Helper()
	out := a.outbox(v.ID.String())
	for i := range out {
		out[i].Envelope = &eventsv1.Event{}
		if err := proto.Unmarshal(out[i].Payload, out[i].Envelope); err != nil {
			a.Fatal(err)
		}
	}
	return out
}

// outbox returns the events of any aggregate in version order, not decoded.
func (a *api) outbox(aggregateID string) []outboxRow {
	a.Helper()
	found, err := a.admin.Query(a.Context(), `
		SELECT id, event_type, aggregate_id, aggregate_type, version, schema_version, occurred_at, epoch, payload
		  FROM video.outbox WHERE aggregate_id = $1 ORDER BY version`, aggregateID)
	if err != nil {
		a.Fatal(err)
	}
	out, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (r outboxRow, err error) {
		err = row.Scan(&r.ID, &r.Type, &r.AggregateID, &r.Aggregate, &r.Version, &r.Schema, &r.OccurredAt, &r.Epoch, &r.Payload)
		r.OccurredAt = r.OccurredAt.UTC()
		return r, err
	})
	if err != nil {
		a.Fatal(err)
	}
	return out
}

// checkContiguous expects one event for each version from 1 to v's.
func (a *api) checkContiguous(v Video) {
	a.Helper()
	events := a.events(v)
	for i, e := range events {
		if e.Version != int64(i+1) || e.Envelope.GetVersion() != e.Version || e.Epoch != eventing.FirstEpoch {
			a.Errorf("event %d of %s has version %d, envelope %d, epoch %d", i, v.ID, e.Version, e.Envelope.GetVersion(), e.Epoch)
		}
	}
	if int64(len(events)) != v.Version {
		a.Errorf("%d events of a video at version %d", len(events), v.Version)
	}
}

// patience ends a test that would otherwise hang.
const patience = 2 * time.Minute

// behind runs write while another instance writes the same row, with the given statement. It commits
// that statement when write waits for it, and returns after both.
func (a *api) behind(write func() error, statement string, args ...any) {
	a.Helper()
	tx := pgtest.Begin(a, a.admin)
	pgtest.Exec(a, tx, statement, args...)
	written := make(chan error, 1)
	go func() {
		err := write()
		for errors.Is(err, txn.ErrLocked) { // on a busy machine
			err = write()
		}
		written <- err
	}()
	pgtest.Until(a, "the write waits", func() (waits bool) {
		err := a.admin.QueryRow(a.Context(), `SELECT EXISTS (
			SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
		return err == nil && waits || len(written) > 0
	})
	pgtest.End(a, tx.Commit)
	if err := <-written; err != nil {
		a.Error(err)
	}
}
