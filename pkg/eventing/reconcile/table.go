package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// PartRows is the most rows that one call digests or lists. The hashes of so many rows take the
	// database some tens of milliseconds, and their list fits into a message of 4 MiB.
	PartRows = 4096
	// leafRows is the number of rows of one digest. With fewer rows per digest the list of digests
	// is longer. With more rows per digest the list of rows for each difference is longer.
	leafRows = 64
	// encoding is the version of the rules in Table.sql by which a row becomes text. It changes
	// when the rules change.
	encoding = 1
)

// ColumnEpoch is the SQL expression for the epoch of a row in a read model, because the tables of a read
// model have a column for it. An owner's tables have no such column. Their expression is
// outbox.PresentEpoch, the owner's present epoch.
const ColumnEpoch = "epoch"

// ErrDefinition means that the two sides cannot compare their rows, because one of them does not
// know a field, or makes digests by other rules.
var ErrDefinition = errors.New("the two builds cannot be compared")

// ReasonIncomparable is the stable error reason that stands for ErrDefinition between two
// services.
const ReasonIncomparable = "CANNOT_COMPARE"

// Definition is the content of a row's digest. Two digests can be compared if their definitions are equal.
type Definition struct {
	// Encoding is the version of the rules by which a row becomes text.
	Encoding int32
	// Fields are the names of the columns that count, besides id, version and times.
	Fields []string
}

// Range has the ids from From up to Until, without Until itself.
type Range struct{ From, Until string }

// Leaf is the digest of the rows from an id on, up to the next leaf.
type Leaf struct {
	From   string
	Rows   int64
	Digest string
}

// Answer is the part of each answer that tells the state of the database that answered.
type Answer struct {
	// AsOf is the time of the answer: everything that had committed by that time is in the answer. The zero
	// time means unknown.
	AsOf time.Time
	// Epoch is the owner's present epoch.
	Epoch int64
}

// Part is the digest of the rows from an id up to Until.
type Part struct {
	Answer
	Leaves []Leaf
	Until  string
}

// Row is the position and the digest of a row, or tombstone. The zero Row stands for no row.
type Row struct {
	ID      string
	Version int64
	Epoch   int64
	// EventID is the event that made Version; the zero id is unknown.
	EventID uuid.UUID
	// At is the time of the event that made Version.
	At time.Time
	// Deleted is true for a tombstone.
	Deleted bool
	Digest  string
}

// stands reports whether r is the same as the earlier row was.
func (r Row) stands(was Row) bool {
	return r.Version == was.Version && r.Epoch == was.Epoch && r.EventID == was.EventID && r.Deleted == was.Deleted && r.Digest == was.Digest
}

// Page is the rows from an id up to Until.
type Page struct {
	Answer
	Rows  []Row
	Until string
}

// Owner answers for the owner's table. In the owner's process an Owner is a *Table. In another
// process it is a client of the owner's service. The methods return ErrDefinition if the two builds
// cannot be compared.
type Owner interface {
	// Part digests the rows from an id on, up to PartRows rows. The Until of the result is the
	// table's End if no row follows.
	Part(ctx context.Context, d Definition, from string) (Part, error)
	// Page lists the rows of a range from its begin, up to PartRows rows. The Until of the result
	// is the range's Until if no row follows.
	Page(ctx context.Context, d Definition, r Range) (Page, error)
}

// Table is the rows of one type of aggregate in a database. Its columns have the names that
// all tables of this library's services have: version, last_event_id, created_at, updated_at
// and deleted_at.
type Table struct {
	Key

	db     *pgxpool.Pool
	name   string
	fields []string
	epoch  string
}

// NewTable returns the table with this name, which is found through db's search_path. key has
// columns of UUIDs. columns are the columns to compare, separated by commas. They may include the
// columns of the key, and the columns that every table has. epoch is the SQL expression of a row's
// epoch, such as ColumnEpoch.
func NewTable(db *pgxpool.Pool, name string, key Key, columns, epoch string) *Table {
	common := append([]string{"version", "epoch", "last_event_id", "created_at", "updated_at", "deleted_at"}, key...)
	t := &Table{Key: key, db: db, name: name, epoch: epoch}
	for column := range strings.SplitSeq(columns, ",") {
		if column = strings.TrimSpace(column); !slices.Contains(common, column) && column != "" {
			t.fields = append(t.fields, column)
		}
	}
	slices.Sort(t.fields)
	return t
}

// Definition returns the Definition that has all of the table's fields.
func (t *Table) Definition() Definition { return Definition{Encoding: encoding, Fields: t.fields} }

// check returns an error unless ids are ids of the table and the table can make digests by d. The names in
// d.Fields come from a request, and become part of a statement only after this check. Each name may occur
// once, so that the number of columns bounds the statement's length and cost.
func (t *Table) check(d Definition, ids ...string) error {
	if d.Encoding != encoding {
		return fmt.Errorf("%w: digests by rules %d, and not %d", ErrDefinition, encoding, d.Encoding)
	}
	for i, field := range d.Fields {
		switch {
		case !slices.Contains(t.fields, field):
			return fmt.Errorf("%w: %s has no field %.100q, only %s", ErrDefinition, t.name, field, strings.Join(t.fields, ", "))
		case slices.Contains(d.Fields[:i], field):
			return fmt.Errorf("%w: the field %q is there twice", ErrDefinition, field)
		}
	}
	for _, id := range ids {
		if err := t.Key.check(id); err != nil {
			return err
		}
	}
	return nil
}

// Key is the columns of a table's key, all of them UUIDs. The id of a row, which is the aggregate
// id of its events, is these UUIDs joined by colons. As text in the collation "C", ids have the
// order of their keys.
type Key []string

// ErrID is returned for a text that is no id of the table.
var ErrID = errors.New("not an id of this table")

// Start is the lowest id of the table.
func (k Key) Start() string { return k.id(uuid.Nil) }

// End is above the id of each row, because no row has the Max UUID of RFC 9562.
func (k Key) End() string { return k.id(uuid.Max) }

func (k Key) id(part uuid.UUID) string {
	return strings.TrimSuffix(strings.Repeat(part.String()+":", len(k)), ":")
}

// IDExpr is the SQL expression of a row's id.
func (k Key) IDExpr() string { return strings.Join(k, "::text || ':' || ") + "::text" }

// KeyExpr is the SQL expression that makes the key from the id in a parameter such as $1.
func (k Key) KeyExpr(parameter string) string {
	parts := make([]string, len(k))
	for i := range k {
		parts[i] = fmt.Sprintf("split_part(%s::text, ':', %d)::uuid", parameter, i+1)
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// check accepts an id only in the canonical form, because only ids in this form can be compared as
// text.
func (k Key) check(id string) error {
	parts := strings.Split(id, ":")
	if len(parts) != len(k) {
		return fmt.Errorf("%w: %.100q", ErrID, id)
	}
	for _, part := range parts {
		if key, err := uuid.Parse(part); err != nil || key.String() != part {
			return fmt.Errorf("%w: %.100q", ErrID, id)
		}
	}
	return nil
}

// Only returns the range that has one id. The id must be in the canonical form.
func Only(id string) Range {
	at := strings.LastIndexByte(id, ':') + 1
	next := uuid.MustParse(id[at:]) // ids come from the tables
	for i := len(next) - 1; i >= 0; i-- {
		next[i]++
		if next[i] != 0 {
			break
		}
	}
	return Range{From: id, Until: id[:at] + next.String()}
}
