package queue

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// TxSnapshot is Postgres's pg_snapshot in text form. It says which transactions a statement saw.
// An empty TxSnapshot means that there is none.
type TxSnapshot string

// Beginning is a snapshot that saw no transaction.
const Beginning TxSnapshot = "1:1:"

// orNull returns s as a parameter of a statement, which is NULL if s is empty.
func (s TxSnapshot) orNull() *string {
	if s == "" {
		return nil
	}
	return (*string)(&s)
}

// parts returns the parts of s. xmin is the lowest transaction that was open, xmax is the first
// transaction that had not begun, and open has all transactions that were open.
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

// before reports whether s saw less than t. Any two snapshots of one life of a server (see
// HeartbeatResult.Server) can be compared, because the later snapshot sees everything that the earlier
// one saw.
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

// Earliest returns the snapshot that saw the least. It ignores empty snapshots. All others must be of
// one life of the server, or Beginning.
func Earliest(all ...TxSnapshot) (first TxSnapshot) {
	for _, s := range all {
		if s != "" && (first == "" || s.before(first)) {
			first = s
		}
	}
	return first
}

// Latest returns the one of the snapshots a and b that saw more. It ignores an empty snapshot.
func Latest(a, b TxSnapshot) TxSnapshot {
	if a == "" || b != "" && a.before(b) {
		return b
	}
	return a
}

// Since returns the parts of the table that contain all rows that s did not see. There is one
// part for each transaction that was open in s, and one for all later transactions.
func (s TxSnapshot) Since() []Cursor {
	_, xmax, open := s.parts()
	var parts []Cursor
	for _, xact := range open {
		x, _ := strconv.ParseUint(xact, 10, 64)
		parts = append(parts, cursor(x, x))
	}
	return append(parts, cursor(xmax, math.MaxUint64))
}

// Until returns the parts of Since without the rows of transactions that had not begun in t.
func (s TxSnapshot) Until(t TxSnapshot) []Cursor {
	parts := s.Since()
	_, xmax, _ := t.parts()
	parts[len(parts)-1].to = strconv.FormatUint(max(xmax, 1)-1, 10)
	return parts
}

// unseen returns the parts without the rows that s saw.
func (s TxSnapshot) unseen(parts []Cursor) (left []Cursor) {
	for _, p := range parts {
		for _, u := range s.Since() {
			if number(p.xact) > number(u.xact) {
				u.xact, u.id = p.xact, p.id
			}
			first, last := number(u.xact), min(number(p.to), number(u.to))
			if u.to = strconv.FormatUint(last, 10); first < last || first == last && u.id != [16]byte(everyBit) {
				left = append(left, u)
			}
		}
	}
	return left
}

// Through returns the part of the table that begins at c and that the page p has read. If p is the
// last page of a part without an end, the returned part ends at p's snapshot, because later claims
// find later rows.
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

// Join adds part to parts, and merges parts that overlap or touch. If the result would have more than
// maxParts, Join merges all of them into one part, with everything that lies between them.
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

// hull returns the smallest part that contains both c and d.
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

// cursor returns a cursor at the start of the part with all rows of the transactions first to last.
func cursor(first, last uint64) Cursor {
	// A scan reads the rows that follow its cursor. So the cursor is at the largest id of the
	// transaction before first.
	return Cursor{xact: strconv.FormatUint(max(first, 1)-1, 10), to: strconv.FormatUint(last, 10), id: [16]byte(everyBit)}
}

var everyBit = []byte(strings.Repeat("\xff", 16))
