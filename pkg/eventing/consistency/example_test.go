package consistency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/notify"
)

// A session keeps one token for all that it writes and reads.
func ExampleMerge() {
	var session consistency.Token
	keep := func(text string) {
		token, err := consistency.Parse(text)
		if err == nil {
			session, err = consistency.Merge(session, token)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	for _, write := range []consistency.Position{
		{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 1},
		{AggregateType: "video", AggregateID: "b", Epoch: 1, Version: 4},
		{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 2},
	} {
		keep(consistency.Token{Positions: []consistency.Position{write}}.String())
	}
	for _, p := range session.Positions {
		fmt.Println(p.Key(), p.Version)
	}
	// Output:
	// video/a 2
	// video/b 4
}

// unreachable is a Query whose projection is behind and whose owner does not answer.
type unreachable struct{ calls int }

func (*unreachable) ReadProjection(context.Context) (consistency.Freshness, error) {
	return consistency.Behind, nil
}

func (q *unreachable) FetchFromOwner(context.Context) error {
	q.calls++
	return consistency.ErrOwnerUnavailable
}

// A reader never gets older data by surprise: it gets an error, or the stale data that it
// has allowed. After five failures in a row the owner is left alone, and readers hear that
// at once.
func ExampleReader_Read_ownerUnavailable() {
	waiters := consistency.NewWaiters(100, nil, notify.New(nil, "", "example", slog.New(slog.DiscardHandler)))
	reader, q := consistency.NewReader(waiters), &unreachable{}
	read := func(staleIfError bool) (consistency.Outcome, error) {
		token := consistency.Token{Positions: []consistency.Position{{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 2}}}
		request := consistency.Request{Token: token.String(), StaleIfError: staleIfError}
		required, err := request.Requirement("video", func(string) bool { return true })
		if err != nil {
			return consistency.Failed, err
		}
		return reader.Read(context.Background(), required, q)
	}
	for range 5 {
		_, err := read(false)
		fmt.Println(errors.Is(err, consistency.ErrOwnerUnavailable), q.calls)
	}
	outcome, err := read(true)
	fmt.Println(outcome, err, q.calls)
	// Output:
	// true 1
	// true 2
	// true 3
	// true 4
	// true 5
	// stale <nil> 5
}

// A write answers with a token. Callers send its text along, and never look into it.
func ExampleParse() {
	text := consistency.Token{Positions: []consistency.Position{
		{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 7},
	}}.String()
	token, err := consistency.Parse(text)
	fmt.Println(token.Positions, err)

	_, err = consistency.Parse(text[:len(text)-1])
	fmt.Println("cut off:", errors.Is(err, consistency.ErrMalformed))
	// Output:
	// [{video a 1 7}] <nil>
	// cut off: true
}

// A read of videos requires the positions of videos in the token. An error names the field
// that the client has sent.
func ExampleRequest_Requirement() {
	isID := func(id string) bool { return len(id) == 1 }
	like := consistency.Position{AggregateType: "engagement", AggregateID: "u:a", Epoch: 1, Version: 2}
	video := consistency.Position{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 7}
	token, err := consistency.Merge(
		consistency.Token{Positions: []consistency.Position{like}}, consistency.Token{Positions: []consistency.Position{video}})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := consistency.Request{Token: token.String(), TokenField: "consistency_token", Wait: consistency.DefaultWait}
	required, err := request.Requirement("video", isID)
	fmt.Println(required.Positions(), err)
	fmt.Println(required.Unmet(consistency.Position{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 5}))

	_, err = request.Requirement("engagement", isID)
	fmt.Println(err)
	// Output:
	// [{video a 1 7}] <nil>
	// [{a 5 7}]
	// consistency_token: names no engagement
}
