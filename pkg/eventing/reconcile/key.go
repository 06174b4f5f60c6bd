package reconcile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// An id is the aggregate id of events: the UUIDs of the key's columns, joined by colons. As
// text in the collation "C" ids have the order of their keys.

// ErrID is returned for a text that is no id of the table.
var ErrID = errors.New("not an id of this table")

// Start is the lowest id of the table.
func (t *Table) Start() string { return t.id(uuid.Nil) }

// End is above the id of each row: the Max UUID of RFC 9562 is the id of nothing.
func (t *Table) End() string { return t.id(uuid.Max) }

func (t *Table) id(part uuid.UUID) string {
	return strings.TrimSuffix(strings.Repeat(part.String()+":", len(t.key)), ":")
}

// checkID accepts the canonical form only, which is the one that compares as text.
func (t *Table) checkID(id string) error {
	parts := strings.Split(id, ":")
	if len(parts) != len(t.key) {
		return fmt.Errorf("%w: %.100q", ErrID, id)
	}
	for _, part := range parts {
		if key, err := uuid.Parse(part); err != nil || key.String() != part {
			return fmt.Errorf("%w: %.100q", ErrID, id)
		}
	}
	return nil
}

// Only is the range of one id, in the canonical form.
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
