package localpubsub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub"
)

// A fault loses one request of acknowledgements and answers OK. The message
// comes again after its deadline of 10 s, which the clock skips.
func ExampleServer_SetFaults() {
	clock := localpubsub.NewClock()
	server, client := demo(localpubsub.Options{Clock: clock}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	if err := server.SetFaults(1, localpubsub.Fault{Kind: localpubsub.AckLost, Times: 1}); err != nil {
		fmt.Println(err)
		return
	}
	publish(client, "", "hello")
	acknowledge(client, pull(client))
	clock.Advance(10 * time.Second)
	acknowledge(client, pull(client))
	clock.Advance(10 * time.Second)
	pull(client)
	// Output:
	// published "hello": OK
	// received ["hello"]
	// acknowledged: OK
	// received ["hello"]
	// acknowledged: OK
	// received []
}

// A fault answers a publish with an error code: here to each message with the
// ordering key k1, as for an event that the service never accepts.
func ExampleServer_SetFaults_rejectedMessage() {
	server, client := demo(localpubsub.Options{}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	if err := server.SetFaults(1, localpubsub.Fault{Kind: localpubsub.Reject, Key: "k1"}); err != nil {
		fmt.Println(err)
		return
	}
	publish(client, "k1", "bad")
	publish(client, "k2", "good")
	pull(client)
	// Output:
	// published "bad": InvalidArgument
	// published "good": OK
	// received ["good"]
}

// The answer to an accepted publish is lost, once. The client publishes again,
// so the message arrives twice, with two ids.
func ExampleServer_SetFaults_duplicate() {
	server, client := demo(localpubsub.Options{}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	lost := localpubsub.Fault{Kind: localpubsub.AnswerLost, Method: "Publish", Times: 1}
	if err := server.SetFaults(1, lost); err != nil {
		fmt.Println(err)
		return
	}
	publish(client, "", "hello")
	pull(client)
	// Output:
	// published "hello": OK
	// received ["hello" "hello"]
}

// Another process sets the faults over HTTP, at the same port.
func ExampleFaultPlan() {
	server, client := demo(localpubsub.Options{}, &pubsubpb.Subscription{})
	defer server.Close()
	defer client.Close()

	plan, err := json.Marshal(localpubsub.FaultPlan{Seed: 7, Faults: []localpubsub.Fault{
		{Kind: localpubsub.Latency, Method: "Publish", Delay: localpubsub.Duration(5 * time.Millisecond), Probability: 0.5},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, err := http.NewRequest(http.MethodPut, "http://"+server.Addr()+"/control/faults", bytes.NewReader(plan))
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	now, err := io.ReadAll(response.Body)
	fmt.Printf("%s %s%v\n", response.Status, now, err)
	// Output:
	// 200 OK {"seed":7,"faults":[{"kind":"latency","method":"Publish","probability":0.5,"delay":"5ms"}]}
	// <nil>
}
