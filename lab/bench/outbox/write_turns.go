package outbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// writeTurns is the number of turns of each side. The order of the sides changes from turn to turn,
// and is reversed in each second turn, because a side's place and its predecessor are worth up to 5 %.
const writeTurns = 30

// writesInTurns makes writers commit the transactions of each side in turns. The turns of a side
// sum up to limit. It returns the transactions per second of each side. During the turns, a
// connection listens for the notifications of the plain writers.
func writesInTurns(
	ctx context.Context, d *rig.Database, relays *rig.Relays, sides []transaction, writers int, limit time.Duration,
) ([]float64, error) {
	// Each side has sessions of its own. On shared sessions Postgres plans the statements again after
	// each change of the role, and a side that has its sessions alone finds their caches cold.
	var pools []*pgxpool.Pool
	defer func() {
		for _, db := range pools {
			db.Close()
		}
	}()
	for range sides {
		db, err := d.Pool(ctx, writers)
		if err != nil {
			return nil, err
		}
		pools = append(pools, db)
	}
	listening, stop := context.WithCancel(ctx)
	ended, err := listen(listening, d)
	defer func() { stop(); <-ended }()
	if err != nil {
		return nil, err
	}
	committed, took := make([]int64, len(sides)), make([]time.Duration, len(sides))
	for turn := range writeTurns + 1 {
		for place := range sides {
			i := (place + turn) % len(sides)
			if turn%2 == 1 {
				i = len(sides) - 1 - i
			}
			w := sides[i]
			start := time.Now()
			n, err := w.during(ctx, pools[i], relays, writers, limit/writeTurns)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if turn > 0 { // in the first turn, connections prepare their statements
				committed[i] += n
				took[i] += time.Since(start)
			}
		}
	}
	rates := make([]float64, len(sides))
	for i := range rates {
		rates[i] = float64(committed[i]) / took[i].Seconds()
	}
	return rates, nil
}

// during returns the number of transactions that the writers commit within limit.
func (w transaction) during(ctx context.Context, db *pgxpool.Pool, relays *rig.Relays, writers int, limit time.Duration) (int64, error) {
	var committed atomic.Int64
	err := measure.Flood(ctx, writers, limit, func(ctx context.Context, _ int) error {
		if err := w.do(ctx, db); err != nil {
			return err
		}
		if w.wake {
			relays.Wake()
		}
		committed.Add(1)
		return nil
	})
	return committed.Load(), err
}

// listen receives the notifications of the plain writers until ctx ends. The returned channel is
// closed when ctx has ended, or after an error.
func listen(ctx context.Context, d *rig.Database) (<-chan struct{}, error) {
	ended := make(chan struct{})
	conn, err := pgx.Connect(ctx, d.Service)
	if err == nil {
		_, err = conn.Exec(ctx, `LISTEN outbox_wake`)
	}
	if err != nil {
		close(ended)
		return ended, err
	}
	go func() {
		defer close(ended)
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
		}
	}()
	return ended, nil
}
