package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// renew extends the leases that have lasted for a third of their time. A batch whose lease
// another relay has taken over starts no further request. A row that another transaction
// has locked keeps its lease as it was.
func (r *Relay) renew(ctx context.Context) {
	due := r.inFlight.dueForRenewal()
	if len(due) == 0 {
		return
	}
	heads := make([]uuid.UUID, 0, len(due))
	for id := range due {
		heads = append(heads, id)
	}
	sent := time.Now()
	held, lost, err := r.queue.Renew(ctx, r.token, heads)
	if err != nil {
		r.log.WarnContext(ctx, "leases not renewed", "error", err)
		return
	}
	for _, id := range held {
		due[id].extend(sent.Add(queue.LeaseTime))
	}
	for _, id := range lost {
		due[id].extend(sent)
	}
}
