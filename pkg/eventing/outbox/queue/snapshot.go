package queue

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// TxSnapshot is Postgres's pg_snapshot: the transactions that a statement saw. The empty
// one is none.
type TxSnapshot string

// Beginning is before all transactions.
const Beginning TxSnapshot = "1:1:"

// orNull is s as a parameter of a statement.
func (s TxSnapshot) orNull() *string {
	if s == "" {
		return nil
	}
	return (*string)(&s)
}

// parts are the lowest open transaction, the first one that had not begun, and all open
// ones.
func (s TxSnapshot) parts() (xmin, xmax uint64, open []string) {
	low, rest, _ := strings.Cut(string(s), ":")
	high, list, _ := strings.Cut(rest, ":")
	xmin, _ = strconv.ParseUint(low, 10, 64)
	xmax, _ = strconv.ParseUint(high, 10, 64)
	if list != "" {
		open = strings.Split(list, ",")
	}
	return xmin, xmax, open
}

// before reports whether s saw less than t. Snapshots of one server are in order: a later
// one sees everything that an earlier one saw.
func (s TxSnapshot) before(t TxSnapshot) bool {
	smin, smax, sopen := s.parts()
	tmin, tmax, topen := t.parts()
	switch {
	case smax != tmax:
		return smax < tmax
	case smin != tmin:
		return smin < tmin
	default:
		return len(sopen) > len(topen)
	}
}

// Earliest is the snapshot that saw the least. Empty ones do not count.
func Earliest(all ...TxSnapshot) (first TxSnapshot) {
	for _, s := range all {
		if s != "" && (first == "" || s.before(first)) {
			first = s
		}
	}
	return first
}

// Latest is the one of two snapshots that saw more. An empty one does not count.
func Latest(a, b TxSnapshot) TxSnapshot {
	if a == "" || b != "" && a.before(b) {
		return b
	}
	return a
}

// Since are the parts of the table with all rows that s did not see: the rows of each
// transaction that was open, and those of all later ones.
func (s TxSnapshot) Since() []Cursor {
	_, xmax, open := s.parts()
	var parts []Cursor
	for _, xact := range open {
		x, _ := strconv.ParseUint(xact, 10, 64)
		parts = append(parts, cursor(x, x))
	}
	return append(parts, cursor(xmax, math.MaxUint64))
}

// Until is Since without the rows of transactions that had not begun in t.
func (s TxSnapshot) Until(t TxSnapshot) []Cursor {
	parts := s.Since()
	_, xmax, _ := t.parts()
	parts[len(parts)-1].to = strconv.FormatUint(max(xmax, 1)-1, 10)
	return parts
}

// Through is the part of the table that the page p has read, from c on. It has an end even if p
// is the last page of a part without one: later rows are found by later claims.
func (c Cursor) Through(p Page) Cursor {
	end := number(p.Next.xact)
	if p.Done {
		_, xmax, _ := p.Seen.parts()
		end = max(end, xmax-min(xmax, 1))
	}
	c.to = strconv.FormatUint(min(end, number(c.to)), 10)
	return c
}

// maxParts bounds the parts that Join returns.
const maxParts = 64

// Join adds a part to others. The result has all of them, merged where they touch, and into one
// beyond maxParts.
func Join(parts []Cursor, part Cursor) []Cursor {
	var apart []Cursor
	for _, p := range parts {
		if number(p.xact) <= number(part.to) && number(part.xact) <= number(p.to) {
			part = part.hull(p)
		} else {
			apart = append(apart, p)
		}
	}
	if len(apart) < maxParts {
		return append(apart, part)
	}
	for _, p := range apart {
		part = part.hull(p)
	}
	return []Cursor{part}
}

// hull is the smallest part that has both.
func (c Cursor) hull(d Cursor) Cursor {
	if x, y := number(c.xact), number(d.xact); y < x || y == x && bytes.Compare(d.id[:], c.id[:]) < 0 {
		c.xact, c.id = d.xact, d.id
	}
	if number(d.to) > number(c.to) {
		c.to = d.to
	}
	return c
}

func number(xact string) uint64 {
	n, _ := strconv.ParseUint(xact, 10, 64)
	return n
}

// cursor is the start of the part that has all rows of the transactions first to last.
func cursor(first, last uint64) Cursor {
	// Behind the largest id of the transaction before.
	return Cursor{xact: strconv.FormatUint(max(first, 1)-1, 10), to: strconv.FormatUint(last, 10), id: [16]byte(everyBit)}
}

var everyBit = []byte(strings.Repeat("\xff", 16))
