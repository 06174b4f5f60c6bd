package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/backlog"
)

// backlog parses a command line without ids, and returns the outbox of DATABASE_URL.
func (s *invocation) backlog(ctx context.Context) (*backlog.Backlog, error) {
	if err := s.parse(0); err != nil {
		return nil, err
	}
	return s.openBacklog(ctx)
}

func (s *invocation) openBacklog(ctx context.Context) (*backlog.Backlog, error) {
	err := s.connect(ctx, needs{})
	return backlog.New(s.db), err
}

func status(ctx context.Context, s *invocation) error {
	b, err := s.backlog(ctx)
	if err != nil {
		return err
	}
	now, err := b.Status(ctx)
	if err != nil {
		return err
	}
	return s.print(now, func(w io.Writer) {
		printCounts(w, now)
		seen := "never"
		if now.RelaySeen != nil {
			seen = stamp(*now.RelaySeen)
		}
		fmt.Fprintf(w, "relays alive\t%d, seen last %s\n", now.Relays, seen)
		fmt.Fprintf(w, "oldest to send\t%s\n", (time.Duration(now.OldestAge * float64(time.Second))).Round(time.Millisecond))
		if now.Parked == 0 {
			return
		}
		fmt.Fprintln(w, "\nPARKED\tREASON")
		for _, r := range now.ByReason {
			fmt.Fprintf(w, "%d\t%s\n", r.Parked, oneLine(r.Reason))
		}
		fmt.Fprintln(w, "\nAGGREGATE\tVERSION\tEVENT\tPARKED AT\tBLOCKED\tREASON")
		for _, a := range now.ByAggregate {
			more := ""
			if a.Blocked == backlog.MaxBlocked {
				more = " or more"
			}
			fmt.Fprintf(w, "%s/%s\t%d\t%s\t%s\t%d%s\t%s\n", a.AggregateType, a.AggregateID, a.Version, a.Event,
				stamp(a.ParkedAt), a.Blocked, more, oneLine(a.Reason))
		}
	})
}

func list(ctx context.Context, s *invocation) error {
	s.filterFlags()
	parked := s.flags.Bool("parked", false, "")
	limit := s.flags.Int("limit", 100, "")
	if err := s.parse(0); err != nil {
		return err
	}
	if *limit < 1 || *limit > backlog.MaxList {
		return command.Usagef("--limit %d: from 1 to %d", *limit, backlog.MaxList)
	}
	b, err := s.openBacklog(ctx)
	if err != nil {
		return err
	}
	events, err := b.List(ctx, backlog.Filter{Parked: *parked, AggregateID: s.aggregate, Reason: s.reason}, *limit)
	if err != nil {
		return err
	}
	return s.print(map[string]any{"events": events}, func(w io.Writer) {
		fmt.Fprintln(w, "EVENT\tAGGREGATE\tVERSION\tTYPE\tSTATE\tATTEMPTS\tOCCURRED AT\tREASON")
		for _, e := range events {
			printEvent(w, e)
		}
	})
}

func printEvent(w io.Writer, e backlog.Event) {
	fmt.Fprintf(w, "%s\t%s/%s\t%d\t%s\t%s\t%d\t%s\t%s\n", e.ID, e.AggregateType, e.AggregateID, e.Version, e.Type,
		e.State, e.Attempts, stamp(e.OccurredAt), oneLine(e.Reason))
}

func show(ctx context.Context, s *invocation) error {
	id, err := s.oneEvent()
	if err != nil {
		return err
	}
	b, err := s.openBacklog(ctx)
	if err != nil {
		return err
	}
	d, err := b.Show(ctx, id)
	if err != nil {
		return err
	}
	return s.print(d, func(w io.Writer) {
		if d.Event == nil {
			fmt.Fprintln(w, "The event has left the outbox; --json shows what it was.")
		} else {
			printEvent(w, *d.Event)
			fmt.Fprintf(w, "%s\n", withoutPayload(d.Row))
		}
		printActions(w, d.Actions)
	})
}

// withoutPayload returns a row of the outbox for a person, with the size of the payload in its place. That of the largest
// event has 84,000 digits.
func withoutPayload(row json.RawMessage) []byte {
	var columns map[string]any
	decoder := json.NewDecoder(bytes.NewReader(row))
	decoder.UseNumber()
	if err := decoder.Decode(&columns); err != nil {
		return row
	}
	if payload, ok := columns["payload"].(string); ok { // \x, and two digits for each byte
		columns["payload"] = fmt.Sprintf("%d bytes, --json has them", max(0, len(payload)/2-1))
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(columns); err != nil {
		return row
	}
	return bytes.TrimSpace(text.Bytes())
}

// printCounts prints how many events wait. A Status counts a part of a large backlog only.
func printCounts(w io.Writer, now backlog.Status) {
	more := ""
	if now.More {
		more = " or more"
	}
	fmt.Fprintf(w, "pending\t%d%s\nblocked\t%d%s\nparked\t%d\n", now.Pending, more, now.Blocked, more, now.Parked)
}
