// Package aggregate has the parts of a write and a read that the aggregates of the
// video service share. An aggregate is a row with a version and the events that lead to it:
// package video has the videos, and each other aggregate is a package of its own.
//
// A write goes this way:
//
//	video.Service.Update, Create, Delete     validates, and calls
//	aggregate.Write                          the present epoch; again if it ends, or the earlier answer
//	txn.Writer.Write                         turns, waits for locks
//	the closure of Update                    queues the SELECT … FOR UPDATE, then
//	Tx.Lock                                  first round trip: BEGIN, settings, the lock, an earlier answer
//	the closure of Update                    decides, queues the UPDATE, then
//	Tx.Store, Tx.Append                      last round trip: the answer, the event, COMMIT
//
// Files:
//
//   - transaction.go: [Write], the transaction of every write: the row, its event and the
//     idempotency key commit together or not at all
//   - revision.go: versions, times, and the preconditions of a write
//   - owner.go: the user that a row belongs to, and the callers that may act for that user
//   - events.go: the parts of an event that do not depend on its type
//   - store.go: reads with the time that they reflect
//   - rest.go, grpc.go: the headers and the metadata of a write
package aggregate
