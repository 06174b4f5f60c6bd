package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// scanning looks for what the claims cannot see, beside them: retries that are due,
// what dead relays had in hand, what a claim had to leave. Its statements may be slow
// and may fail; no new event waits for them. They end with flying, not with ctx: a
// claim that is given up may still commit, after the settling that would have handed
// it back.
func (r *Relay) scanning(ctx, flying context.Context, claimed chan<- *hold) {
	s := newScans()
	for ctx.Err() == nil {
		todo, until := s.next(time.Now(), r.agenda.news())
		switch todo { //nolint:exhaustive // the rest are claims, which need room
		case wait:
			backoff.Sleep(ctx, time.Until(until), r.agenda.toldScan)
			continue
		case sit:
			backoff.Sleep(ctx, time.Until(until), nil)
			continue
		case begin:
			s.begun(r.agenda.beginScan())
			continue
		}
		if !r.flight.reserve(byScan) {
			backoff.Sleep(ctx, beatEvery, r.flight.landedScan)
			continue
		}
		if err := r.scan(flying, s, todo, claimed); err != nil {
			r.flight.release()
			r.agenda.doubt()
			pause := s.failed(time.Now())
			r.log.WarnContext(ctx, "a scan of the outbox has failed, new events leave all the same",
				"error", err, "failures", s.failures, "retry_in_ms", pause.Milliseconds())
		}
	}
}

// scan makes the claim that is due. Room for it is reserved.
func (r *Relay) scan(ctx context.Context, s *scans, todo action, claimed chan<- *hold) error {
	sent := time.Now()
	who := r.claim(r.agenda.leaving())
	switch todo { //nolint:exhaustive // the others are no claims of a scan
	case retry:
		r.agenda.retrying()
		got, in, err := r.queue.Retries(ctx, who)
		if err != nil {
			return err
		}
		r.pass(batch{Claimed: got, who: who, sent: sent}, 0, nil, claimed)
		s.retried(sent, got.Cut, in)
	case page:
		p, err := r.queue.Scan(ctx, who, s.parts[0], scanRows)
		if err != nil {
			return err
		}
		r.pass(batch{Claimed: p.Claimed, who: who, sent: sent, low: s.from}, 0, nil, claimed)
		r.agenda.paged(who.Without)
		if p.Passed && !p.Cut {
			r.agenda.scanFrom(s.from, sent.Add(max(p.FreeIn, jittered(scanEvery))))
		}
		if s.paged(p) {
			r.agenda.endScan()
		}
	case patrol:
		p, err := r.queue.Scan(ctx, who, s.round, patrolRows)
		if err != nil {
			return err
		}
		r.pass(batch{Claimed: p.Claimed, who: who, sent: sent, low: queue.Beginning}, 0, nil, claimed)
		s.patrolled(sent, p)
	}
	return nil
}
