package queue

import (
	"context"
	_ "embed"
	"time"
)

const (
	// HeartbeatEvery is how often a relay writes its low: the place from which another
	// relay must scan if this one dies.
	HeartbeatEvery = 5 * time.Second
	// deadAfter is the age of the last heartbeat at which others take a relay for dead: two
	// heartbeats are missing. A mistake costs a scan and nothing else.
	deadAfter = 3 * HeartbeatEvery
)

// HeartbeatResult is the answer to a relay that has written its row.
type HeartbeatResult struct {
	// Low is a snapshot that saw none of the events that may be unfinished: those of the
	// relay, those of dead relays that it has taken over, and those of no relay.
	Low TxSnapshot
	// Alive are the other relays, and Tenants the last ones that they met.
	Alive, Tenants []string
	// Seen is the snapshot of the heartbeat. Server tells one run of the database's server
	// from another.
	Seen   TxSnapshot
	Server time.Time
}

// heartbeat writes a relay's row, and deletes those of dead relays for it: see "Where to
// look" in the package doc. A relay scans from the least of all rows if it has no row,
// because it is new or was taken for dead, or if it meets another server than before. If
// there is no row, or a row comes from another cluster, it scans from the beginning.
//
//go:embed heartbeat.sql
var heartbeat string

// Heartbeat writes the row of a relay. ended reports that the relay has ended; otherwise it
// is alive. low is its low watermark, a snapshot from before all events that may be
// unfinished in the relay; empty means that there are none. tenants are those that
// it met last. server is the Server of the last answered heartbeat, or zero.
func (q Queue) Heartbeat(
	ctx context.Context, token string, low TxSnapshot, tenants []string, server time.Time, ended bool,
) (b HeartbeatResult, err error) {
	var met *time.Time
	if !server.IsZero() {
		met = &server
	}
	err = q.quick("write that the relay is alive", heartbeat, token, low.orNull(), deadAfter, met, ended, tenants).
		Scan(ctx, &b.Low, &b.Seen, &b.Server, &b.Alive, &b.Tenants)
	return b, err
}
