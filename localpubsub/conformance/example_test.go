package conformance_test

import (
	"context"
	"fmt"
	"slices"

	"example.com/lockstep/localpubsub"
	"example.com/lockstep/localpubsub/conformance"
)

// One behaviour is run against a server; with [conformance.Google] in place of
// [conformance.Local] it would be the real service.
func ExampleRun() {
	ctx := context.Background()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	subject, err := conformance.Local(ctx, "ours", server.Addr(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subject.Close()

	one := slices.DeleteFunc(conformance.Behaviours(), func(b conformance.Behaviour) bool {
		return b.Name != "a redelivery redelivers acknowledged later messages of the key too"
	})
	for _, outcome := range conformance.Run(ctx, subject, one) {
		fmt.Printf("%s: %s: %v\n%s\n", outcome.Behaviour.Area, outcome.Behaviour.Name, outcome.Unexpected(subject), outcome.Behaviour.Source)
	}
	// Output:
	// ordering: a redelivery redelivers acknowledged later messages of the key too: <nil>
	// https://cloud.google.com/pubsub/docs/ordering
}
