package outbox

import (
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// life is a life of the database's server: see queue.HeartbeatResult.Server. A server has a new life after a
// restart, a recovery or a failover. In it a transaction may have an id that a snapshot of the life before has
// seen. So a snapshot says nothing about the events of another life.
type life int64

func lifeOf(server time.Time) life { return life(server.UnixMicro()) }

// server returns the time by which queue.Claim.Server identifies the life l.
func (l life) server() time.Time { return time.UnixMicro(int64(l)) }

// meeting is the beginning of the server's present life, as a relay knows it: the answer to its first heartbeat in that life.
// The snapshot floor saw none of the events that the relay takes care of, so the relay scans from it.
//
// That scan replaces the lists of followUps, which have snapshots of the present life only: two snapshots of different
// lives cannot be compared, see queue.Earliest. The work that goes on after the meeting has datedLows: batches in flight,
// open handovers, claims on their way, and scans.
type meeting struct {
	life  life
	floor queue.TxSnapshot
}

// datedLow is the low of work that the relay has begun (see "Lows and lives" in doc.go), with the life
// of the server in which the low was taken. The work may go on in the next life. The snapshot cannot be
// compared with the lows of that life, so meeting.low returns a low that can.
type datedLow struct {
	snapshot queue.TxSnapshot // the low; empty if the work has none
	life     life             // the life in which snapshot was taken
}

// low returns the low of some work, as a snapshot of the server's present life. If the relay has begun
// the work in a former life, the result is m.floor. queue.Beginning stays as it is, because it saw
// nothing in any life. It is the low of events that the sweep has found, and floor may not cover these.
func (m meeting) low(of datedLow) queue.TxSnapshot {
	if of.life == m.life || of.snapshot == "" || of.snapshot == queue.Beginning {
		return of.snapshot
	}
	return m.floor
}
