package conformance

// Pstest lists what pstest does otherwise than documented.
func Pstest() map[string]Departure {
	const panics = "it panics the process (a nil pointer) as soon as something is replayed"
	harmful := func() Departure { return Departure{Why: panics, Harmful: true} }
	return map[string]Departure{
		"a seek to the past brings back acknowledged messages that are retained":        harmful(),
		"a seek brings back what was published from its time on":                        harmful(),
		"a seek to the past without retention brings back unacknowledged messages only": harmful(),
		"a seek on an ordered subscription replays keys in order":                       harmful(),
		"what a topic retains can be replayed without the subscription's retention":     harmful(),
		"a new subscription can seek to what its topic retained before":                 harmful(),
	}
}
