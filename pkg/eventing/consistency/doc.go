// Package consistency gives readers of a copy their own writes.
//
// A write answers with a Token: this aggregate, this version. A reader sends it
// along, and whoever holds the copy answers nothing older: it reads, and if the
// copy is behind it waits (Waiters) for the event that is on its way. This is
// the zookie of Zanzibar (Pang et al., 2019) and the "at least as fresh" of the
// systems built after it, over versions instead of a global clock. Tokens
// compose: Merge makes one of many, so that a session carries a single text.
//
// Nobody who waits asks the database. One goroutine per process (Run) asks for
// all that is waited for: after a local commit, when another process says over
// NOTIFY that it has committed, and now and then in between, which is all that
// is left where LISTEN does not work.
//
// Waiting is bounded by the caller's context and the number of waiting readers.
// What to do when the wait ends short, such as asking the owner, is the
// caller's decision; answering with what it has is one only where the reader
// has said so (Mode).
package consistency
