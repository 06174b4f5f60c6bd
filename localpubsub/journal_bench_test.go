package localpubsub_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub"
)

// BenchmarkFile measures the cost of a file: publishing by 8 at once, in small
// and in full requests, and receiving with acknowledgements.
func BenchmarkFile(b *testing.B) {
	for _, where := range []string{"memory", "file"} {
		options := localpubsub.Options{Clock: localpubsub.NewClock()}
		fresh := func(b *testing.B) *world {
			b.Helper()
			if where == "file" {
				options.File = filepath.Join(b.TempDir(), "events")
			}
			w := newWorld(b, options)
			w.subscribe(&pubsubpb.Subscription{})
			return w
		}
		b.Run("publish1/"+where, func(b *testing.B) { benchmarkPublish(b, fresh(b), 1) })
		b.Run("publish100/"+where, func(b *testing.B) { benchmarkPublish(b, fresh(b), 100) })
		b.Run("receive/"+where, func(b *testing.B) { benchmarkReceive(b, fresh(b)) })
	}
}

func request(messages int) *pubsubpb.PublishRequest {
	req := &pubsubpb.PublishRequest{Topic: topicName}
	for range messages {
		req.Messages = append(req.Messages, &pubsubpb.PubsubMessage{Data: bytes.Repeat([]byte("x"), 200)})
	}
	return req
}

// benchmarkPublish counts messages.
func benchmarkPublish(b *testing.B, w *world, batch int) {
	b.Helper()
	b.SetParallelism(4)
	req := request(batch)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if i%batch > 0 {
				continue
			}
			if _, err := w.Publish(b.Context(), req); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

func benchmarkReceive(b *testing.B, w *world) {
	b.Helper()
	for left := b.N; left > 0; left -= 1000 {
		if _, err := w.Publish(b.Context(), request(min(left, 1000))); err != nil {
			b.Fatal(err)
		}
	}
	opened, err := w.StreamingPull(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	if err := opened.Send(&pubsubpb.StreamingPullRequest{
		Subscription: subscriptionName, StreamAckDeadlineSeconds: 60, MaxOutstandingMessages: 10_000,
	}); err != nil {
		b.Fatal(err)
	}
	for left := b.N; left > 0; {
		response, err := opened.Recv()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Acknowledge(b.Context(), &pubsubpb.AcknowledgeRequest{
			Subscription: subscriptionName, AckIds: ackIDs(response.GetReceivedMessages()),
		}); err != nil {
			b.Fatal(err)
		}
		left -= len(response.GetReceivedMessages())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
