package consistency

// Mode is what a reader prefers: Zanzibar's vocabulary, as its successors have
// it on their APIs.
type Mode string

// The modes.
const (
	// MinimizeLatency takes what the copy has. A token does not hold the answer
	// up, but the answer says what it lacks of it.
	MinimizeLatency Mode = "minimize-latency"
	// AtLeastAsFresh takes nothing older than a token.
	AtLeastAsFresh Mode = "at-least-as-fresh"
	// FullyConsistent takes what the owner has, and nothing else.
	FullyConsistent Mode = "fully-consistent"
)

// Outcome is how a reader's demand was met.
type Outcome string

// The outcomes.
const (
	Fresh     Outcome = "fresh"     // the copy was there already
	Waited    Outcome = "waited"    // the copy got there within the wait
	Authority Outcome = "authority" // the owner was asked
	Stale     Outcome = "stale"     // not met, which the reader had allowed
	Failed    Outcome = "failed"    // not met, answered with an error
)
