package inbox

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2"

	"example.com/lockstep/pkg/eventing"
)

// TestPoisonOfEveryKind mixes two thousand good events with one of each kind of poison. An
// event that kills the process has a test of its own.
//
// LOCKSTEP_FULL=1 takes ten thousand; `make crash` sets it.
func TestPoisonOfEveryKind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	kinds := []struct {
		name, reason string
		attempts     int
		spoil        func(e *eventing.Event)
	}{
		{"undecodable", "decode event: payload", 0, func(e *eventing.Event) { e.Payload = []byte{0xff} }},
		{"unknown type", "event_type", 0, func(e *eventing.Event) { e.Type = "VideoSung" }},
		{"unknown schema", "schema_version", 0, func(e *eventing.Event) { e.SchemaVersion = 99 }},
		{"another tenant's", "tenant_id", 0, func(e *eventing.Event) { e.TenantID = "globex" }},
		{"decoder panics", "panicked: teapot", 0, func(e *eventing.Event) { e.Payload = []byte("panic") }},
		{"handler panics", "panicked: kettle", maxAttempts, func(*eventing.Event) {}},
		{"handler refuses", "not today", maxAttempts, func(*eventing.Event) {}},
		{"handler refuses for good", "never", 1, func(*eventing.Event) {}},
		{"database refuses", "model_version_check", maxAttempts, func(*eventing.Event) {}},
	}
	_, err := b.pg.Pool(t, b.pg.Admin).Exec(t.Context(),
		`ALTER TABLE app.model ADD CONSTRAINT model_version_check CHECK (id <> 'database refuses')`)
	if err != nil {
		t.Fatal(err)
	}
	c.functions().decode = decodeOrSpoil
	b.setSpoil(spoilByName)
	good := 2_000
	if os.Getenv("LOCKSTEP_FULL") != "" {
		good = 10_000
	}
	var batch []*delivery
	for i := range good {
		batch = append(batch, delivered(event(fmt.Sprintf("good%05d", i), 1)))
	}
	ids := map[string]string{}
	for i, k := range kinds {
		e := event(k.name, 1)
		k.spoil(&e)
		ids[k.name] = e.ID.String()
		m := e.Message()
		batch[i*good/len(kinds)] = c.handler.newDelivery(&pubsub.Message{ID: k.name, Data: m.Data, Attributes: m.Attributes})
	}
	for rest := batch; len(rest) > 0; rest = rest[min(maxBatch, len(rest)):] {
		c.finish(t, rest[:min(maxBatch, len(rest))]...)
	}
	if len(c.unknown.keys) != 0 {
		t.Errorf("%v are unknown still", c.unknown.keys)
	}
	if n := b.count(t, withDone); n != good-len(kinds) {
		t.Errorf("%d of %d good events are done", n, good-len(kinds))
	}
	for _, k := range kinds {
		dead := b.deadLettered(ids[k.name])
		if len(dead) != 1 || !strings.Contains(dead[0].Attributes[AttrDeadLetterReason], k.reason) {
			t.Errorf("%s: dead letters %v, want one because of %q", k.name, dead, k.reason)
		}
		n := b.count(t, `SELECT count(*) FROM inbox WHERE event_id = $1 AND status = 'dead' AND attempts = $2 AND last_error LIKE $3`,
			ids[k.name], k.attempts, "%"+k.reason+"%")
		if n != 1 {
			t.Errorf("%s: the inbox row does not say dead after %d attempts because of %q", k.name, k.attempts, k.reason)
		}
	}
}

func decodeOrSpoil(e eventing.Event) (Change, error) {
	switch {
	case string(e.Payload) == "panic":
		panic("teapot")
	case string(e.Payload) != "p":
		return Change{}, fmt.Errorf("payload: %q", e.Payload)
	case e.TenantID != "":
		return Change{}, fmt.Errorf("tenant_id: %q is not served here", e.TenantID)
	}
	return decode(e)
}

func spoilByName(e eventing.Event) error {
	switch e.AggregateID {
	case "handler panics":
		panic("kettle")
	case "handler refuses":
		return fmt.Errorf("not today")
	case "handler refuses for good":
		return eventing.Permanent(fmt.Errorf("never"))
	}
	return nil
}
