package conformance_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/localpubsub"
	"example.com/lockstep/localpubsub/conformance"
)

// The local Pub/Sub has no departures. The emulator and pstest are tested in
// cmd/conformance, where a broker can be started.
func TestLocalPubSub(t *testing.T) {
	t.Parallel()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	subject, err := conformance.Local(t.Context(), "ours", server.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer subject.Close()
	for _, outcome := range conformance.Run(t.Context(), subject, conformance.Behaviours()) {
		if err := outcome.Unexpected(subject); err != nil {
			t.Errorf("%s: %s: %v", outcome.Behaviour.Area, outcome.Behaviour.Name, err)
		}
	}
}

// A server that does not exist shows no behaviour: no behaviour may pass
// without a server.
func TestEachBehaviourCanFail(t *testing.T) {
	t.Parallel()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	subject, err := conformance.Local(t.Context(), "none", server.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer subject.Close()
	for _, outcome := range conformance.Run(t.Context(), subject, conformance.Behaviours()) {
		if outcome.Err == nil {
			t.Errorf("%s: it holds without a server", outcome.Behaviour.Name)
		}
	}
}

func TestBehavioursAreWellFormed(t *testing.T) {
	t.Parallel()
	behaviours := conformance.Behaviours()
	if len(behaviours) < 50 {
		t.Errorf("there are %d behaviours, want 50 at least", len(behaviours))
	}
	seen := make(map[string]bool)
	for _, b := range behaviours {
		if b.Name == "" || b.Area == "" || seen[b.Name] || strings.HasSuffix(b.Name, ".") {
			t.Errorf("%q in area %q is no name, or one that occurs twice", b.Name, b.Area)
		}
		seen[b.Name] = true
		source, err := url.Parse(b.Source)
		if err != nil || source.Scheme != "https" || source.Host == "" {
			t.Errorf("%s: %q is no source", b.Name, b.Source)
		}
	}
	for name, departures := range map[string]map[string]conformance.Departure{
		"emulator": conformance.Emulator(), "pstest": conformance.Pstest(),
	} {
		for behaviour, departure := range departures {
			if !seen[behaviour] || departure.Why == "" {
				t.Errorf("%s departs from %q because of %q: no behaviour, or no reason", name, behaviour, departure.Why)
			}
		}
	}
}

// An outdated list of departures is detected, in both directions.
func TestUnexpected(t *testing.T) {
	t.Parallel()
	holds := conformance.Outcome{Behaviour: conformance.Behaviour{Name: "it holds", Source: "https://example.com"}}
	fails := holds
	fails.Err = os.ErrInvalid
	left := holds
	left.Left = true
	for name, test := range map[string]struct {
		outcome   conformance.Outcome
		departure *conformance.Departure
		want      string
	}{
		"holds, as documented":        {holds, nil, ""},
		"fails, not listed":           {fails, nil, "invalid argument (documented at https://example.com)"},
		"fails, as listed":            {fails, &conformance.Departure{Why: "it is broken"}, ""},
		"holds, though listed":        {holds, &conformance.Departure{Why: "it is broken"}, "s does this now, so take it off its list of departures (it is broken)"},
		"left out, as listed":         {left, &conformance.Departure{Why: "it explodes", Harmful: true}, ""},
		"holds, fails at other times": {holds, &conformance.Departure{Why: "it is broken", Sometimes: true}, ""},
		"fails, holds at other times": {fails, &conformance.Departure{Why: "it is broken", Sometimes: true}, ""},
	} {
		subject := &conformance.Subject{Name: "s"}
		if test.departure != nil {
			subject.Departures = map[string]conformance.Departure{"it holds": *test.departure}
		}
		got := ""
		if err := test.outcome.Unexpected(subject); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
