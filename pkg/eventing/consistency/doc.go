// Package consistency gives readers of a copy their own writes.
//
// A write answers with a Token: this aggregate, this version. A reader sends it
// along, and whoever holds the copy answers nothing older: it reads, and if the
// copy is behind it waits (Waiters) for the event that is on its way. This is
// the zookie of Zanzibar (Pang et al., 2019) and the "at least as fresh" of the
// systems built after it, over versions instead of a global clock.
//
// Waiting is bounded by the caller's context and the number of waiting readers.
// What to do when the wait ends short, such as asking the owner, is the
// caller's decision; answering with what it has is not one of the choices.
package consistency
