package queue_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// joined writes relays into an empty table of relays, each at a snapshot of its own.
func (b box) registered(t *testing.T, tokens ...string) map[string]queue.HeartbeatResult {
	t.Helper()
	b.exec(t, `DELETE FROM outbox_relays`)
	beats := map[string]queue.HeartbeatResult{}
	for _, token := range tokens {
		b.append(t, uuid.NewString(), 1, 1) // between two of them
		beats[token] = b.heartbeat(t, token, b.snapshot(t), time.Time{})
		// The first of all begins with the table; it has gone through that.
		beats[token] = b.heartbeat(t, token, beats[token].Seen, beats[token].Server)
	}
	return beats
}

func (b box) heartbeat(t *testing.T, token string, low queue.TxSnapshot, server time.Time) queue.HeartbeatResult {
	t.Helper()
	result, err := b.Heartbeat(t.Context(), token, low, nil, server, false)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (b box) tokens(t *testing.T) int { return b.count(t, `SELECT count(*) FROM outbox_relays`) }

func TestTheFirstRelayBeginsWithTheTable(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.exec(t, `DELETE FROM outbox_relays`)
	if got := b.heartbeat(t, "a", "", time.Time{}); got.Low != queue.Beginning {
		t.Errorf("the first: %+v, want all of the table", got)
	}
	first := b.heartbeat(t, "a", b.snapshot(t), time.Time{})
	first = b.heartbeat(t, "a", first.Seen, first.Server)
	b.append(t, "new", 1, 1)
	if got := b.heartbeat(t, "b", "", time.Time{}); got.Low != first.Low || len(got.Alive) != 1 {
		t.Errorf("the second: %+v, want what the first has in hand, which may be dead already: %s", got, first.Low)
	}
	b.exec(t, `DELETE FROM outbox_relays`)
	if got := b.heartbeat(t, "b", b.snapshot(t), time.Time{}); got.Low != queue.Beginning {
		t.Errorf("after the rows were lost: %+v, want all of the table", got)
	}
}

// The relay that finds a dead one takes over its low in the same statement.
func TestADeadRelayIsTakenOver(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for name, seen := range map[string]string{
		"silent":             `now() - interval '16 seconds'`,
		"seen in the future": `now() + interval '40 seconds'`,
		"ended by itself":    `'-infinity'`,
		"":                   `now() - interval '14 seconds'`,
	} {
		beats := b.registered(t, "dead", "successor", "third")
		b.exec(t, `UPDATE outbox_relays SET seen_at = `+seen+` WHERE token = 'dead'`)
		got := b.heartbeat(t, "successor", beats["successor"].Low, beats["successor"].Server)
		if name == "" {
			if got.Low != beats["successor"].Low || b.tokens(t) != 3 || len(got.Alive) != 2 {
				t.Errorf("one that is alive was taken over: %+v", got)
			}
			continue
		}
		if got.Low != beats["dead"].Low || b.tokens(t) != 2 {
			t.Errorf("%s: %+v, want what the dead one had: %s", name, got, beats["dead"].Low)
		}
		if diff := cmp.Diff([]string{"third"}, got.Alive); diff != "" {
			t.Errorf("%s: alive %s", name, diff)
		}
		if got := b.heartbeat(t, "third", beats["third"].Low, beats["third"].Server); got.Low != beats["third"].Low {
			t.Errorf("%s: taken over twice: %+v", name, got)
		}
	}
}

// A relay does not know of a takeover if the answer was lost: it reads its row, and does
// not write over it.
func TestAHeartbeatWithoutAnAnswerIsNotForgotten(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	beats := b.registered(t, "dead", "successor")
	b.exec(t, `UPDATE outbox_relays SET seen_at = '-infinity' WHERE token = 'dead'`)
	b.heartbeat(t, "successor", beats["successor"].Low, beats["successor"].Server) // its answer is lost
	if got := b.heartbeat(t, "successor", beats["successor"].Low, time.Time{}); got.Low != beats["dead"].Low {
		t.Errorf("%+v, want what the dead one had: %s", got, beats["dead"].Low)
	}
	if got := b.heartbeat(t, "successor", beats["successor"].Low, beats["successor"].Server); got.Low != beats["successor"].Low {
		t.Errorf("%+v, want what is left in hand: %s", got, beats["successor"].Low)
	}
}

// Another server than before may lack the last commits, marks among them: the events that
// each relay had leased when it stopped may be unfinished.
func TestAFailoverIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	beats := b.registered(t, "first", "second")
	if got := b.heartbeat(t, "second", beats["second"].Low, beats["second"].Server.Add(-time.Hour)); got.Low != beats["first"].Low {
		t.Errorf("%+v, want the least that any had in hand: %s", got, beats["first"].Low)
	}
}

// Rows of another cluster, restored by a dump, have transactions that say nothing here.
func TestSnapshotsOfAnotherCluster(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.registered(t, "dead")
	b.exec(t, `UPDATE outbox_relays SET seen_at = '-infinity', low = '9000000000000:9000000000000:'`)
	if got := b.heartbeat(t, "successor", "", time.Time{}); got.Low != queue.Beginning {
		t.Errorf("%+v, want all of the table", got)
	}
	beats := b.registered(t, "alive")
	if got := b.heartbeat(t, "alive", "9000000000000:9000000000000:", beats["alive"].Server.Add(-time.Hour)); got.Low != beats["alive"].Low {
		t.Errorf("%+v, want what the row says: %s", got, beats["alive"].Low)
	}
}

func TestEarliest(t *testing.T) {
	t.Parallel()
	inOrder := []queue.TxSnapshot{queue.Beginning, "5:9:5,6,7", "5:9:5,7", "6:9:6", "9:9:", "9:10:9", "10:10:"}
	for i, s := range inOrder {
		for _, later := range inOrder[i:] {
			if got := queue.Earliest(later, "", s); got != s {
				t.Errorf("earliest of %s and %s: %s", later, s, got)
			}
		}
	}
	if got := queue.Earliest("", ""); got != "" {
		t.Errorf("earliest of none: %s", got)
	}
}
