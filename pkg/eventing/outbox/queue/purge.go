package queue

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// PurgePages is how many pages of the table one call of Purge reads. They have a few thousand rows
// at most.
const PurgePages = 128

// NextPurgeRange reserves the next pages of the table for the caller to purge. first is the first
// of these pages. No other relay gets these pages in this pass. due is false while another relay is
// reserving pages. It is also false until the duration in every has passed since the end of the last
// pass over the table.
//
// So the relays of an outbox share one pass over its table. Each range begins where the range
// before ended. The progress is in one row, which is updated once for each range and not for each
// Purge. So the row gets few dead versions while a long-running transaction keeps vacuum from
// removing them. If a relay dies, the rest of its range waits for the next pass.
func (q Queue) NextPurgeRange(ctx context.Context, every time.Duration, pages int) (first int, due bool, err error) {
	err = q.quick("find what to purge", takePurgePages, every, pages).Scan(ctx, &first)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return first, err == nil, err
}

// Purge deletes events that were published more than retention ago from the pages of the
// table that begin at page, in a transaction of its own. more says that the table has pages
// behind the pages that this call reads.
//
// The newest published event of an aggregate stays, without its payload, because Append derives the
// next version from the newest event, and an operator may remove a later event that is not published.
//
// Purge reads the table page by page, because that needs no index. An index on published_at
// would cost another entry for each event, and its lower end would consist of dead entries
// whenever a long transaction delays vacuum.
func (q Queue) Purge(ctx context.Context, retention time.Duration, page int) (deleted int64, more bool, err error) {
	err = q.quick("purge published events", purge,
		page, page+PurgePages, retention).Scan(ctx, &deleted, &more)
	return deleted, more, err
}
