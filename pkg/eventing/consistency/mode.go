package consistency

// Mode is a reader's choice between latency and freshness, in the words of Zanzibar and
// of the APIs that follow it.
type Mode string

// The modes.
const (
	// MinimizeLatency answers from the projection at once. With a token, the answer names the
	// positions that the projection has not reached.
	MinimizeLatency Mode = "minimize-latency"
	// AtLeastAsFresh takes nothing older than a token.
	AtLeastAsFresh Mode = "at-least-as-fresh"
	// FullyConsistent answers from the owner only.
	FullyConsistent Mode = "fully-consistent"
)

// Outcome is how a reader's requirement was met.
type Outcome string

// The outcomes.
const (
	Fresh     Outcome = "fresh"     // the projection was there already
	Waited    Outcome = "waited"    // the projection got there within the wait
	Authority Outcome = "authority" // the owner answered
	Stale     Outcome = "stale"     // not met, which the reader had allowed
	Failed    Outcome = "failed"    // not met, answered with an error
)
