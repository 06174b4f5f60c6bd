package outbox

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing"
)

const parked = `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL`

// refuse refuses the aggregates whose ids have the prefix.
func refuse(prefix string) func(context.Context, *pubsubpb.PublishRequest, func(context.Context) error) error {
	return func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		if strings.HasPrefix(req.Messages[0].OrderingKey, prefix) {
			return status.Error(codes.InvalidArgument, "does not match the schema")
		}
		return send(ctx)
	}
}

// appendEach commits version 1 of n aggregates in one transaction.
func (b *bench) appendEach(t *testing.T, prefix string, n int) {
	t.Helper()
	events := make([]eventing.Event, n)
	for i := range events {
		events[i] = event(fmt.Sprintf("%s%03d", prefix, i), 1)
	}
	if err := b.appendAll(t, events...); err != nil {
		t.Fatal(err)
	}
}

// The topic refuses every message, as one with the wrong schema does.
func TestATopicThatRefusesEverythingIsPaused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setFault(refuse(""))
	b.appendEach(t, "a", 40)
	r := b.start(t)
	b.poll(t, func() bool {
		return r.pauses["video"].failures() >= 4 || b.count(t, parked) > 0
	}, "the topic is neither paused nor are its events parked")
	if n := b.count(t, parked); n != 0 {
		t.Errorf("%d aggregates are parked by a fault of the topic", n)
	}
	if n := b.count(t, attempted); n >= refusedAfter {
		t.Errorf("%d attempts are spent, want fewer than %d", n, refusedAfter)
	}
	b.setFault(nil)
	b.eventually(t, 0, unpublished)
}

// One aggregate writes, and no other: the refusals are about its event, as far as the relay
// can tell.
func TestAnAggregateThatIsRefusedAloneIsParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setFault(refuse(""))
	b.append(t, "a", 1, 2)
	b.exec(t, `UPDATE outbox SET publish_attempts = $1 WHERE version = 1`, maxAttempts-1)
	b.relay(t, 1)
	b.eventually(t, 1, parked+` AND version = 1`)
}

// A refusal of an aggregate after it was parked is a new case.
func TestAParkedEventIsForgottenByItsTopic(t *testing.T) {
	t.Parallel()
	r, bad := newBench(t).newRelay(t), batchOf(1, 1)
	key, known := bad[0].Key(), r.pauses["video"].knownBad
	rep := report{refused: true, err: status.Error(codes.InvalidArgument, "bad")}
	for _, attempts := range []int{maxAttempts - 2, maxAttempts - 1} {
		known[key], bad[0].Refusals = true, attempts
		o := r.settlement(t.Context(), publishResult{&leasedBatch{events: bad}, rep})
		if last := attempts == maxAttempts-1; o.Failure.Park != last || known[key] == last {
			t.Errorf("refused after %d attempts: parked %v, known %v", attempts, o.Failure.Park, known[key])
		}
	}
}

// TestManyBadAggregatesDoNotPauseTheTopicForOthers has more aggregates refused for
// their own contents than a topic is trusted with, and nothing else to send at first.
func TestManyBadAggregatesDoNotPauseTheTopicForOthers(t *testing.T) {
	t.Parallel()
	const bad = 40
	b := newBench(t)
	b.setFault(refuse("bad"))
	b.appendEach(t, "bad", bad)
	r := b.start(t)
	b.poll(t, func() bool { return r.pauses["video"].failures() >= 2 }, "the topic is not paused")
	// The next refusal of each is the last: this test is not about the backoff in between.
	b.exec(t, `UPDATE outbox SET publish_attempts = $1`, maxAttempts-1)
	good := int64(0)
	b.poll(t, func() bool {
		good++
		b.append(t, "good", good, good)
		b.eventually(t, 0, unpublished+` AND aggregate_id = 'good'`)
		return b.count(t, parked) == bad
	}, "the bad ones are not parked while others succeed")
	if n := b.count(t, parked+` AND publish_attempts <> $1`, maxAttempts); n != 0 {
		t.Errorf("%d are parked with other than %d attempts", n, maxAttempts)
	}
	firstSightings(t, b.sent("good"), good)
	t.Logf("%d other events later", good)
}

// TestProbesAreChosenInTurns has two sources of probes: the retries, and the aggregates that
// claims left alone while the topic was paused. One source has more bad aggregates than a
// probe considers, the other has a good one: the probes must reach it.
func TestProbesAreChosenInTurns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ retried, leftAlone string }{
		"bad ones are retried":    {"bad", "good"},
		"bad ones are left alone": {"good", "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, many := newBench(t), map[string]int{"bad": candidatesPerProbe + 10, "good": 1}
			b.appendEach(t, tc.retried, many[tc.retried])
			b.exec(t, `UPDATE outbox SET next_retry_at = now() - interval '1 s', publish_attempts = 1`)
			r := b.newRelay(t)
			var s claimSchedule
			r.step(t.Context(), &s, nil) // it joins the relays
			r.followUps.beginScan()
			r.followUps.endScan()
			b.appendEach(t, tc.leftAlone, many[tc.leftAlone])
			c, seen := r.pauses["video"], map[string]bool{}
			refuseEach(c, 0, "bad000", "bad001", "bad002")
			for range 2 {
				found, _, _, err := r.candidates(t.Context(), c)
				for err == nil && len(c.scan.parts) > 0 {
					found, _, _, err = r.candidates(t.Context(), c)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, batch := range found.Batches {
					seen[strings.TrimRight(batch[0].AggregateID, "0123456789")] = true
				}
				b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL`) // batches that are not chosen go back
				c.postpone(c.state, 0)
				refuseEach(c, c.startProbe(), "bad000")
			}
			if !seen["good"] || !seen["bad"] {
				t.Errorf("two probes in a row are chosen among %v, want one with the good aggregate and one with the others", seen)
			}
		})
	}
}

// TestProbesReachEveryAggregate has many more bad aggregates than a probe chooses among,
// each of which is due again at once, and one good aggregate behind all of them. Each
// aggregate has its turn before another one has its second.
func TestProbesReachEveryAggregate(t *testing.T) {
	t.Parallel()
	const bad = 5*candidatesPerProbe - 1
	for name, retried := range map[string]bool{"all are retried": true, "all are left alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := b.newRelay(t)
			var s claimSchedule
			r.step(t.Context(), &s, nil) // it joins the relays
			r.followUps.beginScan()
			r.followUps.endScan()
			b.appendEach(t, "bad", bad)
			b.appendEach(t, "good", 1)
			if retried {
				b.exec(t, `UPDATE outbox SET next_retry_at = CASE aggregate_id WHEN 'good000' THEN now() ELSE now() - interval '1 s' END`)
			}
			c := r.pauses["video"]
			refuseEach(c, 0, "bad000", "bad001", "bad002")
			for range 2 * (bad + 1) / candidatesPerProbe {
				found, _, _, err := r.candidates(t.Context(), c)
				for err == nil && len(c.scan.parts) > 0 {
					found, _, _, err = r.candidates(t.Context(), c)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, batch := range found.Batches {
					if batch[0].AggregateID == "good000" {
						return
					}
				}
				b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL, next_retry_at = clock_timestamp() WHERE lock_token IS NOT NULL`)
				c.postpone(c.state, 0)
				refuseEach(c, c.startProbe(), "bad000")
			}
			t.Errorf("the good one is never a candidate, %d of %d bad ones are",
				b.count(t, `SELECT count(*) FROM outbox WHERE next_retry_at > now() - interval '1 s'`), bad)
		})
	}
}
