package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"example.com/lockstep/localpubsub"
	"example.com/lockstep/localpubsub/conformance"
	"example.com/lockstep/localpubsub/peer"
)

// column holds the outcomes of one subject, in the order of the behaviours.
type column struct {
	subject  *conformance.Subject
	outcomes []conformance.Outcome
}

// departs reports whether the subject departs from the behaviour of outcome o. It does so if the
// behaviour failed, was left out, or is listed as failing sometimes.
func (c column) departs(o conformance.Outcome) bool {
	return o.Err != nil || o.Left || c.subject.Departures[o.Behaviour.Name].Sometimes
}

func (c column) departing() (n int) {
	for _, outcome := range c.outcomes {
		if c.departs(outcome) {
			n++
		}
	}
	return n
}

// columns tests the subjects one after the other. If they were tested at the same time, they would
// slow each other down.
func (c command) columns(ctx context.Context, behaviours []conformance.Behaviour, stderr io.Writer) ([]column, error) {
	if c.project != "" {
		subject, err := conformance.Google(ctx, c.project)
		if err != nil {
			return nil, err
		}
		return []column{try(ctx, subject, behaviours, stderr)}, nil
	}
	var columns []column
	for _, l := range locals() {
		tried, err := l.try(ctx, behaviours, stderr)
		switch {
		case errors.Is(err, peer.ErrNotInstalled) && !c.write:
			fmt.Fprintln(stderr, "left out:", err)
		case err != nil:
			return nil, err
		default:
			columns = append(columns, tried)
		}
	}
	return columns, nil
}

// server is a running Pub/Sub on this machine.
type server interface {
	Addr() string
	Close() error
}

// local describes a server that runs on this machine while it is tested.
type local struct {
	name       string
	start      func(ctx context.Context) (server, error)
	departures map[string]conformance.Departure
}

// locals returns the local servers. Each is a column of the table. The repository's own server has
// no departures.
func locals() []local {
	return []local{
		{"ours", startOurs, nil},
		{"emulator", startEmulator, conformance.Emulator()},
		{"pstest", startPstest, conformance.Pstest()},
	}
}

// anyPort is an address with any free port of this machine.
const anyPort = "127.0.0.1:0"

func startOurs(context.Context) (server, error)         { return localpubsub.Start(localpubsub.Options{}) }
func startEmulator(ctx context.Context) (server, error) { return peer.StartEmulator(ctx, anyPort) }
func startPstest(ctx context.Context) (server, error)   { return peer.StartPstest(ctx, anyPort) }

func (l local) try(ctx context.Context, behaviours []conformance.Behaviour, stderr io.Writer) (column, error) {
	running, err := l.start(ctx)
	if err != nil {
		return column{}, err
	}
	defer running.Close()
	subject, err := conformance.Local(ctx, l.name, running.Addr(), l.departures)
	if err != nil {
		return column{}, err
	}
	return try(ctx, subject, behaviours, stderr), nil
}

// try tests the behaviours, and then closes the subject.
func try(ctx context.Context, subject *conformance.Subject, behaviours []conformance.Behaviour, stderr io.Writer) column {
	defer subject.Close()
	started := time.Now()
	c := column{subject: subject, outcomes: conformance.Run(ctx, subject, behaviours)}
	fmt.Fprintf(stderr, "%s: %d of %d behaviours in %v\n",
		subject.Name, len(behaviours)-c.departing(), len(behaviours), time.Since(started).Round(time.Second))
	return c
}
