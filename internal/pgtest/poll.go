package pgtest

import (
	"fmt"
	"testing"
	"time"
)

// patience is longer than any wait that ends by itself, on a busy machine.
const patience = 150 * time.Second

// Until polls until a condition is true. what names the condition if that never happens.
func Until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	poll(tb, func() string { return what }, condition)
}

func poll(tb testing.TB, what func() string, condition func() bool) {
	tb.Helper()
	tick, deadline := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("waited %s in vain: %s", patience, what())
		}
	}
}

// Await polls until a query answers want. A query that fails is asked again, because a test may stop the database.
func Await(tb testing.TB, db Querier, want int, query string, args ...any) {
	tb.Helper()
	var got int
	var err error
	poll(tb, func() string { return fmt.Sprintf("%s: %d, want %d; %v", query, got, want, err) }, func() bool {
		err = db.QueryRow(tb.Context(), query, args...).Scan(&got)
		return err == nil && got == want
	})
}
