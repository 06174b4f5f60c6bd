package session_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/session"
)

// A caller writes, the session keeps the token, and the next read carries it.
// The server in this example shows the request that it receives; with the pair
// in its place, the read would return at least the written state.
func Example() {
	written := consistency.Token{Positions: []consistency.Position{
		{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 7},
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			w.Header().Set("Consistency-Token", written.String())
			return
		}
		demanded, err := consistency.Parse(r.Header.Get("Consistency-Token"))
		fmt.Println(r.Method, "at least as fresh as", demanded.Positions, err)
	}))
	defer server.Close()

	var mine session.Session
	client := http.Client{Transport: session.Transport{}}
	ctx := session.With(context.Background(), &mine)
	for _, method := range []string{http.MethodPatch, http.MethodGet} {
		req, err := http.NewRequestWithContext(ctx, method, server.URL, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	// Output:
	// GET at least as fresh as [{video a 1 7}] <nil>
}

// A session keeps the newest state of each aggregate that it has met, in one token.
func ExampleSession() {
	var mine session.Session
	for _, met := range []consistency.Position{
		{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 7},
		{AggregateType: "video", AggregateID: "b", Epoch: 1, Version: 1},
		{AggregateType: "video", AggregateID: "a", Epoch: 1, Version: 5}, // an older read
	} {
		answer := consistency.Token{Positions: []consistency.Position{met}}.String()
		if err := mine.Keep(answer); err != nil {
			fmt.Println(err)
		}
	}
	next, err := consistency.Parse(mine.Token())
	fmt.Println(next.Positions, err)
	// Output: [{video a 1 7} {video b 1 1}] <nil>
}
