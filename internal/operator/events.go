package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/receipt"
)

const aboutEvents = "where is an event: `events help`"

// receipts is the answer of `events show` about a consumed event.
type receipts struct {
	Receipts []receipt.Receipt `json:"receipts"`
	// Projections say which version of the event's aggregates the read model has.
	Projections []consistency.Position `json:"projections"`
	Actions     []audit.Entry          `json:"actions"`
}

func (m ReadModel) showReceipts(ctx context.Context, s *invocation) error {
	id, err := s.oneEvent()
	if err != nil {
		return err
	}
	if err := s.connect(ctx, needs{}); err != nil {
		return err
	}
	var out receipts
	if out.Receipts, out.Actions, err = receipt.Find(ctx, s.db, id); err != nil {
		return err
	}
	found, err := m.Positions(ctx, s.db, aggregates(out.Receipts))
	if err != nil {
		return err
	}
	out.Projections = append([]consistency.Position{}, found...) // not null in JSON
	return s.print(out, func(w io.Writer) {
		for _, r := range out.Receipts {
			printReceipt(w, r)
		}
		for _, p := range out.Projections {
			fmt.Fprintf(w, "read model\t%s/%s is at version %d of epoch %d\n", p.AggregateType, p.AggregateID, p.Version, p.Epoch)
		}
		printActions(w, out.Actions)
	})
}

// aggregates returns the aggregates of the receipts, each of them once.
func aggregates(of []receipt.Receipt) (all []consistency.Position) {
	for _, r := range of {
		p := consistency.Position{AggregateType: r.AggregateType, AggregateID: r.AggregateID}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

func printReceipt(w io.Writer, r receipt.Receipt) {
	processed := "not yet"
	if r.ProcessedAt != nil {
		processed = stamp(*r.ProcessedAt)
	}
	fmt.Fprintf(w, "consumer\t%s\nevent\t%s, version %d of %s/%s\n", r.Consumer, r.Type, r.Version, r.AggregateType, r.AggregateID)
	fmt.Fprintf(w, "status\t%s, %d attempts, %s\n", r.Status, r.Attempts, cmp.Or(oneLine(r.LastError), "no error"))
	fmt.Fprintf(w, "message\t%s, published %s\n", r.MessageID, stamp(r.PublishedAt))
	fmt.Fprintf(w, "received\t%s, seen last %s\nprocessed\t%s\n", stamp(r.ReceivedAt), stamp(r.SeenAt), processed)
}
