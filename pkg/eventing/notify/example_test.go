package notify_test

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/notify"
)

// Two processes on one database receive each other's notifications. Each polls as well,
// because a notification can get lost.
func ExampleNotifier() {
	ctx, stop := context.WithCancel(context.Background())
	db := pgtest.NewExample("")
	defer db.Close()
	log := slog.New(slog.DiscardHandler)
	here, there := notify.New(db.Pool, "", "orders", log), notify.New(db.Pool, "", "orders", log)

	heard := make(chan notify.Notification, 10)
	var running errgroup.Group
	running.Go(func() error { return here.Run(ctx, func(n notify.Notification) { heard <- n }) })
	running.Go(func() error { return there.Run(ctx, func(notify.Notification) {}) })

	// The first notification is of everything: earlier ones are unknown.
	first := <-heard
	fmt.Println(here.Connected(), first.Mentions("order/17"), first.Mentions("order/18"))

	there.Publish("order/17")
	next := <-heard
	fmt.Println(next.Mentions("order/17"), next.Mentions("order/18"))

	stop()
	fmt.Println(running.Wait())
	// Output:
	// true true true
	// true false
	// <nil>
}
