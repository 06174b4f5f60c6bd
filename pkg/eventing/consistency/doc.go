// Package consistency lets the readers of a projection see their own writes.
//
// A write answers with a Token, which names the aggregate and its version. A reader sends the token
// with its request, and the service with the projection returns nothing older than that version.
// The token is like the zookie of Zanzibar (Pang et al., 2019), and the guarantee is like "at least
// as fresh" in the systems built after Zanzibar. But a token has versions instead of the time of a
// global clock. Merge makes one token of many, so a session carries a single text.
//
// # A read
//
// A [Request] states the freshness that a reader wants, over REST and gRPC alike. A validated
// Request is a [Requirement]. A [Reader] reads the projection ([Query]). If the projection is
// behind, the Reader waits (Waiters) for the event that is on its way. If the wait is too long, the
// Reader calls the owner through a circuit breaker, and takes the owner's state. If the owner's
// state is not there in time, or is older than required, the read fails. A read never returns older
// data unless the requirement allows that (Mode, StaleIfError).
//
// A token names a version and no event. So after a failover that has lost commits, and before an operator begins
// an epoch, a row of the lost history satisfies the token of a later write with the same version, until that
// write's event arrives.
//
// # A wait
//
// A waiting reader does not query the database. A commit of its own process ends the wait without a
// query, if the position is known. Otherwise one goroutine per process (Run) queries for all
// waiting readers. It queries for some readers when their wait begins, after a commit of its process with
// an unknown position, when another process announces a commit over NOTIFY, and at an interval. Where LISTEN does not work, it finds
// the commits of other processes only at the interval.
//
// Request.Wait and the reader's context bound each wait. NewWaiters bounds the number of waiting
// readers and the memory that they hold.
package consistency
