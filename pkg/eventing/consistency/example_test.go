package consistency_test

import (
	"fmt"

	"example.com/lockstep/pkg/eventing/consistency"
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
