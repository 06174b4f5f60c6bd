package projection_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/notify"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/txn"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience ends a test that would otherwise hang.
const patience = 2 * time.Minute

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
	CREATE TABLE app.notes (owner text, name text, body text NOT NULL, deleted bool NOT NULL, epoch bigint NOT NULL, event_id uuid, at timestamptz NOT NULL,
		version bigint NOT NULL CHECK (version > 0), applied_at timestamptz NOT NULL DEFAULT '2000-01-01', PRIMARY KEY (owner, name));
	GRANT SELECT, INSERT, UPDATE ON app.notes TO app_service`

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

// change is a change of n's aggregate to n's version, with n as its payload.
func change(kind inbox.Kind, n note) inbox.Change {
	return inbox.Change{Kind: kind, Payload: n, Event: eventing.Event{
		ID: n.EventID.UUID, AggregateType: "note", AggregateID: n.id(), Epoch: n.Epoch, Version: n.Version, OccurredAt: n.At,
	}}
}

// shelf is a copy of notes with an owner; the test sets the owner's state.
type shelf struct {
	*projection.Projection[note]

	notes     *notes
	admin, db *pgxpool.Pool
	writer    *txn.Writer
	waiters   *consistency.Waiters
	said      bytes.Buffer // the log output

	mu    sync.Mutex
	owner map[string]note
	away  error
	curt  bool      // Fetch fails if the owner knows none of the ids
	asOf  time.Time // of the owner's answers
	epoch int64     // of the owner's answers about what it does not know
	asked []string
	calls int             // calls to the owner, each about one or several
	waits []time.Duration // the timeouts of the calls
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	pg := pgtest.New(t)
	s := &shelf{admin: pg.Pool(t, pg.Admin), owner: map[string]note{}}
	pgtest.Exec(t, s.admin, noteSchema)
	s.db = pg.Pool(t, pg.URL)
	s.writer = txn.NewWriter(s.db)
	s.notes = &notes{shelf: s}
	s.waiters = consistency.NewWaiters(10, s.notes, notify.New(s.db, "", "replica", slog.New(slog.DiscardHandler)))
	s.Projection = projection.New(s.writer, s.notes, s.waiters, slog.New(slog.NewTextHandler(&s.said, nil)))
	return s
}

// has sets the owner's state.
func (s *shelf) has(notes ...note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range notes {
		s.owner[n.id()] = n
	}
}

// apply applies changes in a transaction of their own.
func (s *shelf) apply(t *testing.T, changes ...inbox.Change) []inbox.Outcome {
	t.Helper()
	var outcomes []inbox.Outcome
	err := pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) (err error) {
		outcomes, err = s.Apply(t.Context(), tx, changes)
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

func require(t *testing.T, q consistency.Request, wanted ...consistency.Position) consistency.Requirement {
	t.Helper()
	q.Token = consistency.Token{Positions: wanted}.String()
	d, err := q.Requirement("note", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return d
}
