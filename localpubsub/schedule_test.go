package localpubsub_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/localpubsub"
)

var (
	schedules = flag.Int("schedules", 100, "how many fault schedules TestSchedules runs")
	firstSeed = flag.Uint64("seed", 1, "seed of the first of them")
)

// TestSchedules runs random histories with random faults and checks the
// deliveries against the documentation: no accepted message is lost, each key
// keeps its order, attempts are counted, and an acknowledged message of an
// exactly-once subscription is never delivered again. A failure names its seed;
// -seed N -schedules 1 repeats it.
func TestSchedules(t *testing.T) {
	t.Parallel()
	seeds := make(chan uint64)
	var players sync.WaitGroup
	for range 4 {
		players.Go(func() {
			for seed := range seeds {
				play(t, seed)
			}
		})
	}
	for i := range *schedules {
		if t.Failed() {
			break
		}
		seeds <- *firstSeed + uint64(i)
	}
	close(seeds)
	players.Wait()
}

// A player runs one history, on one goroutine and with a still clock, and so
// repeats the same steps for the same seed.
type player struct {
	*world
	*checker

	random  *rand.Rand
	seed    uint64
	sub     *pubsubpb.Subscription
	streams []*stream
	held    []*pubsubpb.ReceivedMessage
	sent    int
}

func play(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, seed))
	options := localpubsub.Options{ReturnOnClose: random.IntN(4) == 0}
	w := newWorld(t, options)
	p := &player{world: w, random: random, seed: seed, sub: &pubsubpb.Subscription{
		EnableMessageOrdering: random.IntN(3) > 0, EnableExactlyOnceDelivery: random.IntN(4) == 0,
	}}
	if random.IntN(2) == 0 {
		p.sub.RetryPolicy = &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(20 * time.Second),
		}
	}
	if random.IntN(3) == 0 {
		w.deadLetters(p.sub)
	} else {
		w.subscribe(p.sub)
	}
	p.checker = newChecker(p.sub, options.ReturnOnClose)
	for range 60 {
		p.step()
	}
	p.settle()
	for _, complaint := range p.complaints {
		t.Errorf("seed %d: %s", seed, complaint)
	}
}

// step does one random step. Streams are read after each call, so that the
// client sees responses in the order in which they were sent.
func (p *player) step() {
	switch n := p.random.IntN(100); {
	case n < 30:
		p.publishSome()
	case n < 55:
		p.pullSome()
	case n < 80:
		p.answer()
	case n < 88:
		p.pass(time.Duration(1+p.random.IntN(15)) * time.Second)
	case n < 91:
		p.openStream()
	case n < 93:
		p.breakStream()
	default:
		p.disturb()
	}
}

// disturb sets no fault, one or two.
func (p *player) disturb() {
	all := []localpubsub.Fault{
		{Kind: localpubsub.Outage, Times: 3},
		{Kind: localpubsub.Throttle, Probability: 0.3},
		{Kind: localpubsub.AnswerLost, Probability: 0.5},
		{Kind: localpubsub.Late, Method: "Publish", Delay: localpubsub.Duration(2 * time.Millisecond), Probability: 0.5},
		{Kind: localpubsub.Latency, Mean: localpubsub.Duration(100 * time.Microsecond)},
		{Kind: localpubsub.Repeat, Probability: 0.5},
		{Kind: localpubsub.Resend, Probability: 0.3},
		{Kind: localpubsub.AckLost, Probability: 0.5},
		{Kind: localpubsub.Reorder, Probability: 0.5},
		{Kind: localpubsub.Reset, Probability: 0.3},
		{Kind: localpubsub.Reject, Key: "k1", Times: 1},
	}
	p.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if err := p.SetFaults(p.seed, all[:p.random.IntN(3)]...); err != nil {
		p.t.Fatal(err)
	}
}

// publishSome publishes a few messages of one key. If the answer is lost, the
// messages may or may not be accepted; some calls give up early.
func (p *player) publishSome() {
	key := []string{"", "k1", "k2", "k3"}[p.random.IntN(4)]
	req := &pubsubpb.PublishRequest{Topic: topicName}
	for range 1 + p.random.IntN(4) {
		p.sent++
		req.Messages = append(req.Messages, &pubsubpb.PubsubMessage{Data: fmt.Append(nil, p.sent), OrderingKey: key})
	}
	patience := patience
	if p.random.IntN(5) == 0 {
		patience = time.Millisecond
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	answer, err := p.Publish(ctx, req)
	if err == nil {
		p.accepted(answer.GetMessageIds())
	}
	p.drain()
}

func (p *player) pullSome() {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	answer, err := p.Pull(ctx, &pubsubpb.PullRequest{
		Subscription: subscriptionName, MaxMessages: int32(1 + p.random.IntN(6)),
		ReturnImmediately: true, //nolint:staticcheck // no wait wanted
	})
	if err != nil {
		p.lostSome() // the messages of a lost answer are lost with it
		return
	}
	p.take(answer.GetReceivedMessages(), answer)
	p.drain()
}

func (p *player) take(messages []*pubsubpb.ReceivedMessage, consumer any) {
	for _, m := range messages {
		p.received(m, consumer, p.clock.Now())
	}
	p.held = append(p.held, messages...)
}

// answer acknowledges, nacks or keeps each leased message.
func (p *player) answer() {
	var acks, nacks, extended, kept []*pubsubpb.ReceivedMessage
	for _, m := range p.held {
		switch p.random.IntN(4) {
		case 0:
			acks = append(acks, m)
		case 1:
			nacks = append(nacks, m)
		case 2:
			extended, kept = append(extended, m), append(kept, m)
		default:
			kept = append(kept, m)
		}
	}
	p.held = kept
	p.settleAll(acks)
	p.deadlines(nacks, 0)
	p.deadlines(extended, 15*time.Second)
}

func (p *player) settleAll(acks []*pubsubpb.ReceivedMessage) {
	if len(acks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	_, err := p.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: subscriptionName, AckIds: ackIDs(acks)})
	p.acked(acks, err)
	p.drain()
}

func (p *player) deadlines(messages []*pubsubpb.ReceivedMessage, d time.Duration) {
	if len(messages) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	_, err := p.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
		Subscription: subscriptionName, AckIds: ackIDs(messages), AckDeadlineSeconds: int32(d / time.Second),
	})
	// A request of an exactly-once subscription may count for some of its ids
	// only. With a lost answer, the client does not know that it counted.
	p.modified(messages, d, p.clock.Now(), err)
	p.drain()
}

func (p *player) pass(d time.Duration) {
	p.clock.Advance(d)
	p.passed(p.clock.Now())
	p.drain()
}

// settle removes all faults, then takes and acknowledges all remaining
// messages.
func (p *player) settle() {
	if err := p.SetFaults(p.seed); err != nil {
		p.t.Fatal(err)
	}
	for len(p.streams) > 0 {
		p.breakStream()
	}
	p.held = nil
	// A pull may find nothing while messages are left: the server sends them to a stream until it notices that the stream is broken.
	for end := time.Now().Add(patience); p.unacked()[subscriptionName] > 0 && time.Now().Before(end); {
		p.pass(31 * time.Second) // longer than any lease or backoff
		got := p.pull()
		p.take(got, &got)
		p.settleAll(got)
		p.held = nil
	}
	if p.sub.GetDeadLetterPolicy() != nil {
		p.deadLettered(p.dead())
	}
	p.verdict()
}
