// Package aggregate has the parts of a write and of a read that all aggregates of the
// video service share. An aggregate is a row with a version, together with the events that
// lead to it. Package video has the videos. Each other aggregate has a package of its own.
//
// A write makes these calls, in this order:
//
//	video.Service.Update, Create, Delete     validates the request, and calls Write
//	aggregate.Write                          reads the present epoch, and starts again if that epoch ends;
//	                                         if the request was answered before, returns that answer
//	txn.Writer.Write                         waits for its turn, and tries again while the row is locked
//	the closure of Update                    queues the SELECT … FOR UPDATE, and calls Lock
//	Tx.Lock                                  makes the first round trip: BEGIN, settings, the lock,
//	                                         the answer to an earlier request
//	the closure of Update                    decides, queues the UPDATE, and calls Store
//	Tx.Store, Tx.Append                      make the last round trip: the answer, the event, COMMIT
//
// Locks of a write:
//
//	write                      lock                             waits for
//	of a row with a new id     none                             a concurrent duplicate with its idempotency key
//	of a row that exists       the row, by SELECT … FOR UPDATE  another write of the row
//	of a row that the caller   an advisory lock on its name:    another write with that name
//	names, and that may not    there may be no row to lock
//	exist yet
//
// A write does not lock the other rows that it reads. The event and the answer are inserted under
// the write's lock. So writes of different rows never wait for each other, except for the turns of
// [txn.Writer] if the database is slow. After 2 seconds of waiting in all, a write fails with
// [txn.ErrLocked] or [txn.ErrBusy].
//
// Files:
//
//   - transaction.go: [Write], the transaction of every write: the row, its event and the
//     idempotency key commit together or not at all
//   - revision.go: versions, times, the preconditions of a write, and the parts of a token and of an
//     event that do not depend on the type
//   - owner.go: the user that a row belongs to, and the callers that may act for that user
//   - store.go: reads, with the time of the state that they return
//   - rest.go, grpc.go: the headers and the metadata of a write
package aggregate
