package topics

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write the generated file")

// generated is the list for Terraform.
const generated = "../../deploy/terraform/topics.json"

// TestGenerated compares Terraform's list with this one; with -update it writes it.
func TestGenerated(t *testing.T) {
	t.Parallel()
	text, err := json.MarshalIndent(Names(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := string(text) + "\n"
	if *update {
		if err := os.WriteFile(generated, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(generated); err != nil || string(is) != want {
		t.Errorf("%s does not follow from the list (%v); `make generate` writes it: %s, want %s", generated, err, is, want)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	want := []string{
		"video.events.catalog",
		"engagement.events.catalog",
	}
	if got := Subscriptions(Catalog); len(got) != len(All) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("subscriptions %v, want one of each topic, and first %v", got, want)
	}
	if got := DeadLetters(Subscription(Video, Catalog)); got != "video.events.catalog.dlq" {
		t.Errorf("dead letters %s", got)
	}
	if got := InProject("p", Video); got != "projects/p/topics/video.events" {
		t.Errorf("full name %s", got)
	}
}
