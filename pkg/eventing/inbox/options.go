package inbox

import "time"

// Options has a safe zero value.
type Options struct {
	// Bytes bounds the messages in hand. Zero: 64 MiB.
	Bytes int64
	// Retention is how long the row of a settled event is kept. Zero: [Retention].
	Retention time.Duration
	// Streams are those of the client's connection. Nil: each stream asks for the whole
	// budget, so that after some breaks of the connection more messages are under way than
	// fit, and the broker counts deliveries that no consumer received.
	Streams *Streams
}
