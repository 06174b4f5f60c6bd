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

// server is the server of the life l: see queue.Claim.Server.
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

// datedLow is the low of work that the relay has begun: the snapshot at, which was taken in the life in. The work may go on in
// the next life. Then at cannot be compared with the lows of that life, but meeting.low returns a low that can. If at is
// empty, the work has no low.
type datedLow struct {
	at queue.TxSnapshot
	in life
}

// low returns the work's low in the server's present life. If the work was begun in a former life, that is floor,
// unless its low is the beginning, which saw nothing in any life: the sweep finds events that no other low covers.
func (m meeting) low(of datedLow) queue.TxSnapshot {
	if of.in == m.life || of.at == "" || of.at == queue.Beginning {
		return of.at
	}
	return m.floor
}
