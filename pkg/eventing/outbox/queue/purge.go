package queue

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// PurgePages is how many pages of the table one Purge reads: a few thousand
// rows at most.
const PurgePages = 128

// NextPurgeRange takes the next pages of the table for the caller to purge, from first on.
// No other relay gets them. due is false while another relay is taking pages, and if the last
// pages of a pass were taken less than the duration every ago.
//
// The relays of an outbox share one pass over its table in this way, and a pass continues
// where the last of them ended. A row is written for each range, not for each Purge: while
// a long-running transaction keeps its dead versions, they are few. If a relay dies, the
// rest of its range waits for the next pass.
func (q Queue) NextPurgeRange(ctx context.Context, every time.Duration, pages int) (first int, due bool, err error) {
	err = q.quick("find what to purge", takePurgePages, every, pages).Scan(ctx, &first)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return first, err == nil, err
}

// Purge deletes events that were published more than retention ago from the pages of the
// table that begin at page, in a transaction of its own. more says that there are pages
// behind them.
//
// The newest event of an aggregate stays, without its payload: by it Append knows which
// version is the next.
//
// Purge goes by the table's pages because that needs no index. An index on published_at
// would cost every event another entry, and its lower end would be dead whenever a long
// transaction holds vacuum up.
func (q Queue) Purge(ctx context.Context, retention time.Duration, page int) (deleted int64, more bool, err error) {
	err = q.quick("purge published events", purge,
		page, page+PurgePages, retention).Scan(ctx, &deleted, &more)
	return deleted, more, err
}
