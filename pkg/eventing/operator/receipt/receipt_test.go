package receipt_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/receipt"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// An event has a receipt of each consumer that has seen it, whatever other consumers share the inbox.
func TestReceiptsOfSeveralConsumers(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db, ctx := pg.Pool(t, pg.URL), t.Context()
	event, acted := uuid.New(), uuid.New()
	_, err := db.Exec(ctx, `
		INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status)
		SELECT consumer, CASE WHEN consumer IN ('b', 'd') THEN $1 ELSE gen_random_uuid() END, 'VideoCreated', 'video', 'v', 1,
		       'message of ' || consumer, now(), CASE consumer WHEN 'b' THEN 'held' ELSE 'done' END
		  FROM unnest(ARRAY['d', 'c', 'a', 'e', 'b']) AS consumer`, event)
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return errors.Join(
			audit.Write(ctx, tx, "retry", audit.Actor{By: "bob"}, audit.Subject{EventID: acted}),
			audit.Write(ctx, tx, "discard", audit.Actor{By: "ada"}, audit.Subject{EventID: acted}))
	})
	if err != nil {
		t.Fatal(err)
	}
	receipts, actions, err := receipt.Find(ctx, db, event)
	if err != nil || len(actions) != 0 {
		t.Fatalf("%v, %v", actions, err)
	}
	var got []string
	for _, r := range receipts {
		got = append(got, r.Consumer+" "+r.Status+" "+r.MessageID)
	}
	if want := []string{"b held message of b", "d done message of d"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if receipts, actions, err := receipt.Find(ctx, db, acted); err != nil || len(receipts) != 0 || len(actions) != 2 || actions[0].Action != "retry" || actions[1].Action != "discard" {
		t.Errorf("of an event that left the inbox: %v, %v, %v", receipts, actions, err)
	}
	if _, _, err := receipt.Find(ctx, db, uuid.New()); !errors.Is(err, receipt.ErrUnknown) {
		t.Errorf("of no event: %v", err)
	}
}

// An empty inbox has no consumers.
func TestNoReceipts(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	if _, _, err := receipt.Find(t.Context(), pg.Pool(t, pg.URL), uuid.New()); !errors.Is(err, receipt.ErrUnknown) {
		t.Error(err)
	}
}
