package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
	"example.com/lockstep/pkg/eventing/operator/erasure"
)

const eraseUsage = `erase removes a user's text and preferences. Ids, versions and tombstones stay.

usage: erase --user UUID [flags]

flags:
  --user UUID         whose data
  --yes               do it; without, and without a terminal to ask at, only count
  --by NAME           who does it ($USER), for the audit table; a job needs it
  --why TEXT          why; required to act
  --wait TIME         how long to wait for events that are on their way (1m)
%s  --json              one JSON object on stdout

A dry run counts what there is. The command may be cut off at any time, and repeated. It ends
with 1 while something is left, and says what. Block the user at the issuer before:
the command removes no rows that are written after it.

%s

environment: DATABASE_URL%s as of serve

exit codes: 0 done, 1 failed, or something is left, 2 wrong usage
`

const rateFlag = `  --rate N            at most N rows per second (100); 0 is no limit
`

const ownerErases = `The user's rows are deleted one by one, each with its version and its event.
Then these go: the payloads of their published events in the outbox, what the audit table
keeps of their events, and the answers to requests with an idempotency key. An event that is
not published keeps its payload, and is left: without it, those behind it could not be applied.
Of a parked one, retry or skip it (outbox help), and run erase again. Then run erase of each
read model. docs/data-protection.md says what is left where, and for how long.`

const copyErases = `First run erase of the owner, whose events delete the user's rows here. This command removes what
such an event does not reach: the user's dead letters, each after its row has the owner's
state, and what the audit table keeps of the user's rows and events. Rows that are not deleted
yet are left: their events are on their way, or catalog reconcile --repair is needed.`

// A row is deleted in milliseconds; this leaves room for the users.
const eraseRate = 100

// eraseWait is many times the time that an event needs where nothing is wrong.
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
		return fmt.Errorf("there are more than %d dead letters: settle some first", deadletter.MaxLetters)
	}
	letters := Letters{batch, m.Projections(s.db, s.owner).Handler()}
	return s.erase(ctx, m.Erasure(s.db, s.owner, letters, opts), opts, m.Types)
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
