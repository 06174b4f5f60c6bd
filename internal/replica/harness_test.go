package replica_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/database"
	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/replica"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/notify"
)

func TestMain(m *testing.M) { pairtest.Main(m) }

// patience ends a test that would otherwise hang.
const patience = 30 * time.Second

// note is a row of the copy that these tests keep. Its key has two columns, which do
// not come first.
type note struct {
	Body           *string // NULL is refused by the table
	Owner, Name    string
	Epoch, Version int64
	Deleted        bool
	EventID        uuid.NullUUID
	At             time.Time
}

const noteSchema = `
	CREATE TABLE catalog.notes (owner text, name text, body text NOT NULL, deleted bool NOT NULL, epoch bigint NOT NULL, event_id uuid, at timestamptz NOT NULL,
		version bigint NOT NULL CHECK (version > 0), applied_at timestamptz NOT NULL DEFAULT '2000-01-01', PRIMARY KEY (owner, name));
	GRANT SELECT, INSERT, UPDATE ON catalog.notes TO catalog_service`

const noteColumns = `body, owner, name, epoch, version, deleted, event_id, at`

// newNote is a note under the name that its events and its owner use: "owner/name".
func newNote(id string, epoch, version int64, body string) note {
	owner, name, _ := strings.Cut(id, "/")
	return note{Body: &body, Owner: owner, Name: name, Epoch: epoch, Version: version}
}

func newGrave(id string, epoch, version int64) note {
	n := newNote(id, epoch, version, "")
	n.Deleted = true
	return n
}

// by is n with the id of its event and its time, in minutes.
func (n note) by(event byte, minute int) note {
	n.EventID, n.At = uuid.NullUUID{UUID: uuid.UUID{event}, Valid: true}, minuteOf(minute)
	return n
}

func minuteOf(minute int) time.Time {
	return time.Date(2026, 11, 22, 12, minute, 0, 0, time.UTC)
}

func (n note) id() string { return n.Owner + "/" + n.Name }

func positionOf(n note) inbox.Position {
	return inbox.Position{Epoch: n.Epoch, Version: n.Version, Deleted: n.Deleted, EventID: n.EventID.UUID, At: n.At}
}

var noteWriter = replica.NewWriter("notes", "owner, name", "concat(owner, '/', name)", positionOf,
	replica.Of("body", "text", func(n note) *string { return n.Body }),
	replica.Of("owner", "text", func(n note) string { return n.Owner }),
	replica.Of("version", "bigint", func(n note) int64 { return n.Version }),
	replica.Of("name", "text", func(n note) string { return n.Name }),
	replica.Of("deleted", "bool", func(n note) bool { return n.Deleted }),
	replica.Of("epoch", "bigint", func(n note) int64 { return n.Epoch }),
	replica.Of("event_id", "uuid", func(n note) pgtype.UUID { return pgtype.UUID{Bytes: n.EventID.UUID, Valid: n.EventID.Valid} }),
	replica.Of("at", "timestamptz", func(n note) time.Time { return n.At }))

func lockNotes(ctx context.Context, tx pgx.Tx, ids []string) (map[string]note, error) {
	rows, _ := tx.Query(ctx, `SELECT `+noteColumns+` FROM notes WHERE concat(owner, '/', name) = ANY ($1)
		ORDER BY owner, name FOR UPDATE`, ids)
	return replica.ByID(rows, pgx.RowToStructByName[note], note.id)
}

// change is a change of n's aggregate to n's version, with n as its payload.
func change(kind inbox.Kind, n note) inbox.Change {
	return inbox.Change{Kind: kind, Payload: n, Event: eventing.Event{
		ID: n.EventID.UUID, AggregateType: "note", AggregateID: n.id(), Epoch: n.Epoch, Version: n.Version, OccurredAt: n.At,
	}}
}

func snapshot(n note) inbox.Change {
	if n.Deleted {
		return change(inbox.Deleted, n)
	}
	return change(inbox.Snapshot, n)
}

// shelf is a copy of notes with an owner; the test sets the owner's state.
type shelf struct {
	replica.Table[note]

	admin, db *pgxpool.Pool
	writer    *database.Writer
	watch     *statements
	said      bytes.Buffer // the log output

	mu    sync.Mutex
	owner map[string]note
	away  error
	asOf  time.Time // of the owner's answers
	asked []string
	calls int             // calls to the owner, each about one or several
	waits []time.Duration // the timeouts of the calls
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	pg := pairtest.New(t)
	s := &shelf{admin: pg.Pool(t, pg.Admin), watch: &statements{}, owner: map[string]note{}}
	if _, err := s.admin.Exec(t.Context(), noteSchema); err != nil {
		t.Fatal(err)
	}
	cfg, err := pgxpool.ParseConfig(pg.CatalogURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = s.watch
	if s.db, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.db.Close)
	s.writer = database.NewWriter(s.db)
	s.Table = replica.Table[note]{
		DB: s.db, Type: "note", Snapshot: snapshot, Ask: s.ask, AskAll: s.askAll, Look: s.look,
		Log: slog.New(slog.NewTextHandler(&s.said, nil)),
		Decode: func(e eventing.Event) (inbox.Change, error) {
			return inbox.Change{Kind: inbox.Put, Payload: newNote(e.AggregateID, e.Epoch, e.Version, string(e.Payload))}, nil
		},
		Rows: inbox.Rows[note]{
			Lock: lockNotes, Position: positionOf, Write: noteWriter.Write,
			Onto: func(_ note, c inbox.Change) note { return c.Payload.(note) },
		},
	}
	s.wait(s.look)
	return s
}

// wait gives s waiters that use look, once their Run is called.
func (s *shelf) wait(look consistency.Look) {
	s.Waiters = consistency.NewWaiters(10, look, notify.New(s.db, "", "replica", slog.New(slog.DiscardHandler)))
}

// askAll is several calls of ask in one.
func (s *shelf) askAll(ctx context.Context, ids []string, timeout time.Duration) (notes []note, asOf time.Time, err error) {
	for _, id := range ids {
		a, err := s.ask(ctx, id, timeout)
		switch {
		case err == nil:
			notes, asOf = append(notes, a.Row), a.AsOf
		case !errors.Is(err, replica.ErrUnknown):
			return nil, asOf, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls -= len(ids) - 1
	return notes, asOf, nil
}

func (s *shelf) ask(_ context.Context, id string, timeout time.Duration) (replica.Answer[note], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.asked, s.waits = append(s.asked, id), append(s.waits, timeout)
	n, known := s.owner[id]
	switch {
	case s.away != nil:
		return replica.Answer[note]{}, s.away
	case !known:
		return replica.Answer[note]{AsOf: s.asOf}, replica.ErrUnknown
	}
	return replica.Answer[note]{Row: n, AsOf: s.asOf}, nil
}

func (s *shelf) look(ctx context.Context, wanted []consistency.Position) (found []consistency.Position, err error) {
	ids := make([]string, len(wanted))
	for i, p := range wanted {
		ids[i] = p.AggregateID
	}
	rows, _ := s.db.Query(ctx, `SELECT 'note' AS aggregate_type, concat(owner, '/', name) AS aggregate_id, epoch, version FROM notes WHERE concat(owner, '/', name) = ANY ($1)`, ids)
	return pgx.CollectRows(rows, pgx.RowToStructByName[consistency.Position])
}

// has sets the owner's state.
func (s *shelf) has(notes ...note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range notes {
		s.owner[n.id()] = n
	}
}

// apply puts changes through Rows in a transaction of their own.
func (s *shelf) apply(t *testing.T, changes ...inbox.Change) []inbox.Outcome {
	t.Helper()
	var outcomes []inbox.Outcome
	err := pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) (err error) {
		outcomes, err = s.Rows.Apply(t.Context(), tx, changes)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// rows is the whole table, by key.
func (s *shelf) rows(t *testing.T) []note {
	t.Helper()
	rows, _ := s.db.Query(t.Context(), `SELECT `+noteColumns+` FROM notes ORDER BY owner, name`)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[note])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func at(id string, epoch, version int64) consistency.Position {
	return consistency.Position{AggregateType: "note", AggregateID: id, Epoch: epoch, Version: version}
}

func demand(t *testing.T, q fresh.Request, wanted ...consistency.Position) fresh.Demand {
	t.Helper()
	q.Token = consistency.Token{Positions: wanted}.String()
	d, err := q.Demand("note", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// statements are those sent on a pool.
type statements struct {
	mu  sync.Mutex
	sql []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sql = append(s.sql, q.SQL)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// about counts the statements that have part in them.
func (s *statements) about(part string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sql := range slices.Values(s.sql) {
		if strings.Contains(sql, part) {
			n++
		}
	}
	return n
}

// untilSomebodyWaits returns when a session of s waits for a row that another holds.
func (s *shelf) untilSomebodyWaits(t *testing.T) {
	t.Helper()
	s.until(t, "a session waits for a lock", func() bool {
		var n int
		err := s.admin.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		return err == nil && n > 0
	})
}

func (*shelf) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("not so: " + what)
		}
	}
}
