// Package consistency gives readers of a projection their own writes.
//
// A write answers with a Token, which names the aggregate and its version. A reader sends the token
// along, and the service with the projection returns nothing older than that version. This is the
// zookie of Zanzibar (Pang et al., 2019) and the "at least as fresh" of the systems built after it,
// with versions instead of a global clock. Merge makes one token of many, so a session carries a
// single text.
//
// # A read
//
// A [Request] states the freshness that a reader wants, over REST and gRPC alike. A validated
// Request is a [Requirement]. A [Reader] reads the projection ([Query]). If the projection is
// behind, the Reader waits (Waiters) for the event that is on its way. If the wait is too long, it
// fetches the owner's state behind a circuit breaker. If the owner cannot serve either, the read
// fails. A read never returns older data unless the requirement allows that (Mode, StaleIfError).
//
// # A wait
//
// A waiting reader does not query the database. One goroutine per process (Run) queries for all
// waiting readers: after a local commit, when another process announces a commit over NOTIFY, and
// at an interval. Where LISTEN does not work, commits of other processes are found at the interval
// only.
//
// Waiting is bounded by the reader's Wait, its context and the number of waiting readers.
package consistency
