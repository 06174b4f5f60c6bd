// Package consistency gives readers of a copy their own writes.
//
// A write answers with a Token: this aggregate, this version. A reader sends the
// token along, and the holder of the copy returns nothing older: it reads, and if the
// copy is behind it waits (Waiters) for the event that is on its way. This is
// the zookie of Zanzibar (Pang et al., 2019) and the "at least as fresh" of the
// systems built after it, over versions instead of a global clock. Tokens
// compose: Merge makes one of many, so that a session carries a single text.
//
// A waiting reader does not query the database. One goroutine per process (Run)
// queries for all of them: after a local commit, when another process announces a
// commit over NOTIFY, and at an interval, which alone remains where LISTEN does not
// work.
//
// Waiting is bounded by the caller's context and the number of waiting readers.
// The caller decides how to answer when the wait ends too early: it may ask the owner.
// It may return an older copy only if the reader has allowed that (Mode).
package consistency
