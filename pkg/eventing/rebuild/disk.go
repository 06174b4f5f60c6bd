package rebuild

import (
	"context"
	"errors"
	"fmt"

	"example.com/lockstep/pkg/eventing/bounded"
)

// ErrDisk is returned if the free space of the server's disk is too small.
var ErrDisk = errors.New("too little free disk")

// Need is the disk space that a rebuild takes, in bytes.
type Need struct {
	// Copy is for the shadow tables with their indexes: the size of the served ones, and a
	// fifth more for the pages that rows leave which change meanwhile.
	Copy int64 `json:"copy_bytes"`
	// Log is for the write-ahead log of that, five times the size of the tables: 50,000 rows
	// wrote 2.2 times, and a million 7.5 times together with 122,000 writes of clients. Each page
	// of an index is logged as a whole after each checkpoint, and a slow replica or archive keeps
	// the log for as long as it lags.
	Log int64 `json:"log_bytes"`
}

// Total is the sum.
func (n Need) Total() int64 { return n.Copy + n.Log }

// Need returns the disk space that a rebuild takes.
func (r *Rebuild) Need(ctx context.Context) (n Need, err error) {
	err = bounded.Pool{DB: r.db, Limit: shortTime}.Statement("size of the tables", `
		SELECT sum(size)::bigint * 6 / 5, sum(size)::bigint * 5
		  FROM (SELECT pg_total_relation_size(name::regclass) AS size FROM unnest($1::text[]) AS name) AS t`, r.tables()).Scan(ctx, &n.Copy, &n.Log)
	return n, err
}

// CheckDisk returns ErrDisk if free, a size as Postgres writes it, such as 40 GB, is less than
// n. Only an operator knows it: SQL does not see the disk.
func (r *Rebuild) CheckDisk(ctx context.Context, n Need, free string) error {
	var enough bool
	var text string
	err := bounded.Pool{DB: r.db, Limit: shortTime}.Statement(fmt.Sprintf("free disk %q", free),
		`SELECT pg_size_bytes($1) >= $2, pg_size_pretty($2)`, free, n.Total()).Scan(ctx, &enough, &text)
	if err == nil && !enough {
		err = fmt.Errorf("%w: a rebuild needs %s, and %s are free", ErrDisk, text, free)
	}
	return err
}
