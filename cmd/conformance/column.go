package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"example.com/lockstep/internal/localbroker"
	"example.com/lockstep/pkg/localpubsub"
	"example.com/lockstep/pkg/localpubsub/conformance"
)

// column is one subject's outcomes, in the order of the behaviours.
type column struct {
	subject  *conformance.Subject
	outcomes []conformance.Outcome
}

func (c column) failed() (n int) {
	for _, outcome := range c.outcomes {
		if outcome.Err != nil || outcome.Left {
			n++
		}
	}
	return n
}

// columns tries the behaviours on one subject after the other: at the same time
// they would slow each other down.
func (c command) columns(ctx context.Context, behaviours []conformance.Behaviour, stderr io.Writer) ([]column, error) {
	if c.project != "" {
		subject, err := conformance.Google(ctx, c.project)
		if err != nil {
			return nil, err
		}
		return []column{try(ctx, subject, behaviours, stderr)}, nil
	}
	var columns []column
	for _, try := range []func(context.Context, []conformance.Behaviour, io.Writer) (column, error){tryOurs, tryEmulator, tryPstest} {
		tried, err := try(ctx, behaviours, stderr)
		switch {
		case errors.Is(err, localbroker.ErrNotInstalled) && !c.write:
			fmt.Fprintln(stderr, "left out:", err)
		case err != nil:
			return nil, err
		default:
			columns = append(columns, tried)
		}
	}
	return columns, nil
}

func tryOurs(ctx context.Context, behaviours []conformance.Behaviour, stderr io.Writer) (column, error) {
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		return column{}, err
	}
	defer server.Close()
	subject, err := conformance.Local(ctx, "ours", server.Addr(), nil)
	if err != nil {
		return column{}, err
	}
	return try(ctx, subject, behaviours, stderr), nil
}

func tryEmulator(ctx context.Context, behaviours []conformance.Behaviour, stderr io.Writer) (column, error) {
	return tryBroker(ctx, localbroker.Official, "emulator", conformance.Emulator(), behaviours, stderr)
}

func tryPstest(ctx context.Context, behaviours []conformance.Behaviour, stderr io.Writer) (column, error) {
	return tryBroker(ctx, localbroker.Fake, "pstest", conformance.Pstest(), behaviours, stderr)
}

func tryBroker(
	ctx context.Context, kind localbroker.Kind, name string, departures map[string]conformance.Departure,
	behaviours []conformance.Behaviour, stderr io.Writer,
) (column, error) {
	server, err := localbroker.Start(ctx, localbroker.Options{Kind: kind})
	if err != nil {
		return column{}, err
	}
	defer server.Close()
	subject, err := conformance.Local(ctx, name, server.Addr(), departures)
	if err != nil {
		return column{}, err
	}
	return try(ctx, subject, behaviours, stderr), nil
}

// try closes the subject.
func try(ctx context.Context, subject *conformance.Subject, behaviours []conformance.Behaviour, stderr io.Writer) column {
	defer subject.Close()
	started := time.Now()
	c := column{subject: subject, outcomes: conformance.Run(ctx, subject, behaviours)}
	fmt.Fprintf(stderr, "%s: %d of %d behaviours in %v\n",
		subject.Name, len(behaviours)-c.failed(), len(behaviours), time.Since(started).Round(time.Second))
	return c
}
