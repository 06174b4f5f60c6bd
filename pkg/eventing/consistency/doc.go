// Package consistency gives readers of a projection their own writes.
//
// A write answers with a Token: this aggregate, this version. A reader sends the token
// along, and the service with the projection returns nothing older. This is the zookie of
// Zanzibar (Pang et al., 2019) and the "at least as fresh" of the systems built after it,
// over versions instead of a global clock. Tokens compose: Merge makes one of many, so
// that a session carries a single text.
//
// # A read
//
// A [Request] is a reader's wish, over REST and gRPC alike; a validated Request is a
// [Requirement]. A [Reader] reads the projection ([Query]). If the projection is behind,
// the Reader waits (Waiters) for the event that is on its way; if the wait is too long, it
// fetches the owner's state behind a circuit; if neither can serve, it fails. It never
// returns older data unless the requirement allows that (Mode, StaleIfError).
//
// # A wait
//
// A waiting reader does not query the database. One goroutine per process (Run)
// queries for all of them: after a local commit, when another process announces a
// commit over NOTIFY, and at an interval, which alone remains where LISTEN does not
// work.
//
// Waiting is bounded by the reader's Wait, its context and the number of waiting readers.
package consistency
