package eventing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func sample() Event {
	return Event{
		ID:              uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"),
		PreviousEventID: uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8056"),
		AggregateType:   "video",
		AggregateID:     "v1",
		Type:            "VideoCreated",
		Version:         7,
		SchemaVersion:   1,
		Payload:         []byte("payload"),
		OccurredAt:      time.Date(2026, 11, 21, 12, 0, 0, 123456000, time.UTC),
		TenantID:        "acme",
		Epoch:           FirstEpoch,
		TraceParent:     "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	want := sample()
	m := want.Message()
	if m.OrderingKey != want.AggregateID {
		t.Errorf("ordering key %q, want the aggregate id %q", m.OrderingKey, want.AggregateID)
	}
	got, err := ParseMessage(m.Data, m.Attributes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-sent +parsed)\n%s", diff)
	}
}

func TestParseMessageWithoutEpoch(t *testing.T) {
	t.Parallel()
	m := sample().Message()
	delete(m.Attributes, AttrEpoch)
	got, err := ParseMessage(m.Data, m.Attributes)
	if err != nil || got.Epoch != FirstEpoch {
		t.Errorf("epoch %d, %v; want %d for a message of before epochs", got.Epoch, err, FirstEpoch)
	}
}

// A first event has no predecessor, and neither has one of before they were named.
func TestMessageWithoutPredecessor(t *testing.T) {
	t.Parallel()
	e := sample()
	e.PreviousEventID = uuid.Nil
	m := e.Message()
	if _, named := m.Attributes[AttrPreviousEventID]; named {
		t.Error("an unknown predecessor is named")
	}
	if got, err := ParseMessage(m.Data, m.Attributes); err != nil || got.PreviousEventID != uuid.Nil {
		t.Errorf("predecessor %s, %v", got.PreviousEventID, err)
	}
}

// No two aggregates have one key.
func TestKeysAreUnique(t *testing.T) {
	t.Parallel()
	e := sample()
	e.AggregateType, e.AggregateID = "order/item", "7"
	if err := e.Validate(); err == nil || !strings.HasPrefix(err.Error(), "aggregate_type:") {
		t.Errorf("a type that ends in what another's id begins with: %v, want an error that names it", err)
	}
	m := e.Message()
	if _, err := ParseMessage(m.Data, m.Attributes); !IsPermanent(err) || !strings.Contains(err.Error(), "aggregate_type:") {
		t.Errorf("its message: %v, want a permanent error that names it", err)
	}
	e.AggregateType, e.AggregateID = "order", "item/7"
	if err := e.Validate(); err != nil {
		t.Errorf("an id may have it: %v", err)
	}
}

func TestParseMessageNamesTheAttribute(t *testing.T) {
	t.Parallel()
	for attr, bad := range map[string]string{
		AttrEventID:         "not-a-uuid",
		AttrAggregateType:   "",
		AttrAggregateID:     "",
		AttrEventType:       "",
		AttrVersion:         "1.5",
		AttrSchemaVersion:   "-1",
		AttrOccurredAt:      "yesterday",
		AttrEpoch:           "0",
		AttrPreviousEventID: "not-a-uuid",
	} {
		m := sample().Message()
		m.Attributes[attr] = bad
		_, err := ParseMessage(m.Data, m.Attributes)
		if err == nil || !strings.Contains(err.Error(), attr) {
			t.Errorf("%s=%q: error %v, want one that names it", attr, bad, err)
		}
		if !IsPermanent(err) {
			t.Errorf("%s=%q: error is not permanent, although a retry cannot succeed", attr, bad)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for field, spoil := range map[string]func(*Event){
		"event_id":       func(e *Event) { e.ID = uuid.Nil },
		"aggregate_id":   func(e *Event) { e.AggregateID = strings.Repeat("k", MaxKeyBytes+1) },
		"version":        func(e *Event) { e.Version = 0 },
		"schema_version": func(e *Event) { e.SchemaVersion = 1 << 31 },
		"occurred_at":    func(e *Event) { e.OccurredAt = time.Time{} },
		"epoch":          func(e *Event) { e.Epoch = 0 },
	} {
		e := sample()
		spoil(&e)
		if err := e.Validate(); err == nil || !strings.HasPrefix(err.Error(), field+":") {
			t.Errorf("%s: error %v, want one that names it", field, err)
		}
	}
	if err := sample().Validate(); err != nil {
		t.Errorf("good event: %v", err)
	}
}

// The attribute of a message has four digits for the year.
func TestValidateKnowsTheYearsOfTheFormat(t *testing.T) {
	t.Parallel()
	for year, want := range map[int]bool{-5: false, 0: false, 1: true, 9999: true, 10000: false, 300000: false} {
		e := sample()
		e.OccurredAt = time.Date(year, 2, 3, 0, 0, 0, 0, time.UTC)
		if err := e.Validate(); (err == nil) != want || err != nil && !strings.HasPrefix(err.Error(), "occurred_at:") {
			t.Errorf("year %d: %v", year, err)
		}
	}
}

func TestNextTimeGrows(t *testing.T) {
	t.Parallel()
	ahead := time.Now().Add(time.Hour)
	for range 3 {
		next := NextTime(ahead)
		if !next.After(ahead) || next.Sub(ahead) > time.Microsecond || next.Nanosecond()%1000 != 0 || next.Location() != time.UTC {
			t.Errorf("after %v: %v", ahead, next)
		}
		ahead = next
	}
	before := time.Now().Truncate(time.Microsecond)
	if now := NextTime(time.Time{}); now.Before(before) || now.After(time.Now()) {
		t.Errorf("the first time is %v, want the present one", now)
	}
}

// What passes here must pass Postgres, too: it is too late when that refuses.
func TestValidateKnowsWhatADatabaseTakes(t *testing.T) {
	t.Parallel()
	for field, set := range map[string]func(*Event, string){
		"aggregate_type": func(e *Event, s string) { e.AggregateType = s },
		"aggregate_id":   func(e *Event, s string) { e.AggregateID = s },
		"event_type":     func(e *Event, s string) { e.Type = s },
		"tenant_id":      func(e *Event, s string) { e.TenantID = s },
		"traceparent":    func(e *Event, s string) { e.TraceParent = s },
	} {
		for _, bad := range []string{"a\x00b", "\x00", "a\xffb", "\xed\xa0\x80"} {
			e := sample()
			set(&e, bad)
			if err := e.Validate(); err == nil || !strings.HasPrefix(err.Error(), field+":") {
				t.Errorf("%s %q: error %v, want one that names it", field, bad, err)
			}
			if good := Storable(bad); good == bad || Storable(good) != good {
				t.Errorf("Storable(%q) = %q", bad, good)
			}
		}
		e := sample()
		set(&e, "ü \U0010ffff \x01")
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestPermanent(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := fmt.Errorf("wrapped: %w", Permanent(cause))
	if !IsPermanent(err) || !errors.Is(err, cause) || IsPermanent(cause) {
		t.Errorf("permanence is lost or invented: %v", err)
	}
}
