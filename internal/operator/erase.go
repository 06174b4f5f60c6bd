package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/erasure"
)

// eraseRate is the default rate, in rows per second. It leaves room for the requests of users,
// because a row is deleted in milliseconds.
const eraseRate = 100

// eraseWait is the default of --wait. It is many times the time in which an event is published and
// applied if there is no fault.
const eraseWait = time.Minute

const aboutErase = "remove a user's text and preferences: `erase help`"

func (o Owner) erase(ctx context.Context, s *invocation) error {
	var opts erasure.Options
	s.flags.IntVar(&opts.Rate, "rate", eraseRate, "")
	if err := s.parseErasure(&opts); err != nil {
		return err
	}
	if err := s.connect(ctx, needs{}); err != nil {
		return err
	}
	// The erasure of a user with many rows has no time limit as a whole. Each of its statements has one.
	return s.erase(ctx, o.Erasure(s.db, opts), opts, o.Types)
}

func (m ReadModel) erase(ctx context.Context, s *invocation) error {
	var opts erasure.Options
	if err := s.parseErasure(&opts); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	batch, err := m.deadLetters(ctx, s, needs{owner: m.OwnerVariable})
	if err != nil {
		return err
	}
	if batch.Partial {
		return errors.New("there are more dead letters than a command can lease at once: settle some first")
	}
	return s.erase(ctx, m.Erasure(s.db, s.owner, batch, opts), opts, m.Types)
}

func (s *invocation) parseErasure(o *erasure.Options) error {
	var user string
	s.flags.StringVar(&user, "user", "", "")
	s.flags.DurationVar(&o.Wait, "wait", eraseWait, "")
	s.confirmFlags()
	if err := s.parse(0); err != nil {
		return err
	}
	var err error
	switch o.User, err = uuid.Parse(user); {
	case err != nil || o.User == uuid.Nil:
		return command.Usagef("--user %q: want the UUID of a user", user)
	case o.Rate < 0 || o.Wait < 0:
		return command.Usagef("--rate and --wait must not be negative")
	}
	return nil
}

// erase shows the plan and, once confirmed, erases.
func (s *invocation) erase(ctx context.Context, e erasure.Eraser, o erasure.Options, types []string) error {
	found, err := erasure.Find(ctx, s.db, e, types)
	if err != nil {
		return err
	}
	for _, f := range found {
		s.planf("%s: %d", f.What, f.Count)
	}
	result := struct {
		DryRun bool            `json:"dry_run"`
		User   uuid.UUID       `json:"user"`
		Found  []erasure.Found `json:"found"`
		Left   []erasure.Found `json:"left,omitempty"`
	}{User: o.User, Found: found}
	err = s.act(&result, &result.DryRun, func() (text string, err error) {
		bar := s.progress()
		bar.begin("erase", erasure.Total(found))
		result.Left, err = erasure.Run(ctx, s.db, e, o, s.actor, types, func() { bar.add(1) })
		bar.end(err)
		if erasure.Total(result.Left) == 0 {
			text = "Erased. Nothing is left here; docs/data-protection.md says what is left elsewhere, and for how long.\n"
		}
		return text, err
	})
	if left := erasure.Total(result.Left); err == nil && left > 0 {
		for _, f := range result.Left {
			if f.Count > 0 {
				fmt.Fprintf(s.Err, "left: %s: %d\n", f.What, f.Count)
			}
		}
		return fmt.Errorf("%d things are left: run erase again", left)
	}
	return err
}
