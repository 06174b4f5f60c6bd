package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.com/lockstep/internal/live"
)

// A scenario is one button of the page.
type scenario struct {
	name, group, label string
	needs              need
	do                 func(*Pair, context.Context, *run)
	expect             string
}

// need is something that a scenario needs. Some pairs do not have it.
type need int

const (
	nothing need = iota
	// ourBroker is the repository's own broker, which injects faults on demand.
	ourBroker
	// ourPostgres is a Postgres that this program has started, so that a scenario may crash it.
	ourPostgres
)

const (
	traffic   = "Traffic"
	processes = "Processes"
	messages  = "Messages"
	outages   = "Outages"
)

// scenarios are all buttons, in the order of the page.
var scenarios = []scenario{
	{"write", traffic, "Write", nothing, (*Pair).writeOne,
		"One video is created and changed twice, and each read with the token of a write has that write."},
	{"burst", traffic, "Burst of 2,000", nothing, (*Pair).burst,
		"2,000 events leave as fast as the machine can, and each video's arrive in order."},
	{"pause", traffic, "Pause the relay", ourBroker, (*Pair).pauseRelay,
		"The broker takes no events: they wait in the outbox, and reads with a token get the owner's answer."},
	{"stop-video", processes, "Restart video", nothing, (*Pair).restartVideo,
		"video drains and starts again under writes, and no request fails."},
	{"stop-catalog", processes, "Restart catalog", nothing, (*Pair).restartCatalog,
		"catalog drains and starts again under writes and reads, and no request fails."},
	{"kill-video", processes, "Kill video", nothing, (*Pair).killVideo,
		"video dies by kill -9 while it writes and relays, and every committed event still leaves, in order."},
	{"kill-catalog", processes, "Kill catalog", nothing, (*Pair).killCatalog,
		"catalog dies by kill -9 between effects and acknowledgements, and each event has its effect once."},
	{"duplicates", messages, "Duplicates", ourBroker, (*Pair).duplicates,
		"Every event comes four times, and 20 likes still count as 20."},
	{"reorder", messages, "Reordering", ourBroker, (*Pair).reorder,
		"The last event, a deletion, comes first and the others after it, each twice: the video stays deleted."},
	{"gap", messages, "Gap", ourBroker, (*Pair).gap,
		"One event is lost for good: the next one shows the gap, and catalog takes the owner's state."},
	{"poison", messages, "Poison", nothing, (*Pair).poison,
		"A message that cannot be read goes to the dead letters with its reason, and others go on."},
	{"refuse", messages, "Refusal", ourBroker, (*Pair).refuse,
		"The broker refuses one video's events: they are parked, others leave, and a retry lets them go in order."},
	{"broker-outage", outages, "Outage of the broker", ourBroker, (*Pair).brokerOutage,
		"The broker answers nothing: writes succeed, no attempt is used up, and all events leave afterwards."},
	{"owner-outage", outages, "Outage of the owner", ourBroker, (*Pair).ownerOutage,
		"video is away: catalog serves its copy, and refuses a read that would be too old."},
	{"postgres-outage", outages, "Outage of Postgres", ourPostgres, (*Pair).postgresOutage,
		"Postgres crashes under writes and recovers: no change without its event, no event without its change."},
}

// Promises returns the promises that the scenarios show.
func Promises() []live.Promise {
	return []live.Promise{
		{ID: "P1", Name: "atomic", Text: "A change and its event commit together or not at all."},
		{ID: "P2", Name: "delivered", Text: "Every committed event reaches the broker, whichever process dies."},
		{ID: "P3", Name: "ordered", Text: "The first sending of a version comes after that of the version before."},
		{ID: "P4", Name: "isolated", Text: "A refused event parks its own aggregate only."},
		{ID: "P5", Name: "once", Text: "The effect of an event is applied once, however often it comes."},
		{ID: "P6", Name: "forward", Text: "An older version never overwrites a newer one, and a deleted video stays deleted."},
		{ID: "P7", Name: "gapless", Text: "A gap is repaired from the owner, or held; no row is silently wrong."},
		{ID: "P8", Name: "fresh", Text: "A read with a token never has older data than the token."},
		{ID: "P9", Name: "poison", Text: "A message that cannot be processed ends in the dead letters, and others go on."},
		{ID: "P12", Name: "graceful", Text: "A process that is asked to end finishes all that it accepted."},
	}
}

// Buttons returns the buttons of all scenarios. If the pair lacks something that a scenario needs,
// the button says so.
func (p *Pair) Buttons() (all []live.Button) {
	for _, s := range scenarios {
		b := live.Button{Name: s.name, Group: s.group, Label: s.label, Expect: s.expect}
		switch {
		case s.needs == ourBroker && !p.faults:
			b.Without = "Needs the repository's own Pub/Sub."
		case s.needs == ourPostgres && p.Postgres == nil:
			b.Without = "Needs a Postgres that this program started."
		}
		all = append(all, b)
	}
	return all
}

type run struct {
	scenario
	runner  *Runner
	seen    map[string]string
	repairs []func(context.Context) error
}

// atEnd registers a repair for the end of the scenario. The repair also runs if the scenario fails
// or takes too long. It does not run if the whole pair ends. Repairs run in reverse order.
func (t *run) atEnd(repair func(context.Context) error) { t.repairs = append(t.repairs, repair) }

func (t *run) repaired(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, repairTime)
	defer cancel()
	for _, repair := range slices.Backward(t.repairs) {
		if failed := repair(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("repair: %w", failed))
		}
	}
	return err
}

// sayf shows the progress of the scenario on the page.
func (t *run) sayf(format string, args ...any) {
	t.runner.note(live.Outcome{Name: t.name, Result: live.Running, Said: fmt.Sprintf(format, args...)})
}

// sawf records evidence that the pair has kept a promise. The evidence counts only if the scenario
// succeeds.
func (t *run) sawf(promise, format string, args ...any) {
	t.seen[promise] = fmt.Sprintf(format, args...)
}

func (t *run) evidence() string {
	var all []string
	for _, promise := range slices.Sorted(maps.Keys(t.seen)) {
		all = append(all, t.seen[promise])
	}
	return strings.Join(all, " ")
}
