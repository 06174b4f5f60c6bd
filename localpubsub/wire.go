package localpubsub

import (
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that ours builds on
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The protobuf fields of deliveries.
const (
	fieldReceivedMessages = 1 // of StreamingPullResponse and PullResponse
	fieldProperties       = 4 // of StreamingPullResponse
	fieldAckID            = 1 // of ReceivedMessage
	fieldMessage          = 2
	fieldDeliveryAttempt  = 3
	fieldExactlyOnce      = 1 // of SubscriptionProperties
	fieldOrdered          = 2
)

// maxResponse is the approximate size in bytes of the messages in one response.
const maxResponse = 1 << 20

// frame is a response that is already encoded. Messages are kept encoded. If a delivery decoded
// them, gRPC would only encode them again, and this would be most of the work of the delivery.
type frame []byte

// frames is gRPC's own protobuf codec, except that it sends a frame as it is.
type frames struct{ encoding.CodecV2 }

func newFrames() frames { return frames{encoding.GetCodecV2("proto")} }

func (c frames) Marshal(v any) (mem.BufferSlice, error) {
	if ready, ok := v.(frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(ready)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// delivery is a copy of those fields of an entry that are sent. The subscription's lock protects
// the entry. The lock is not held while the delivery is sent.
type delivery struct {
	raw     []byte
	id      ackID
	attempt uint64 // 0 without a dead letter policy, as documented
}

func (s *subscription) deliveries(batch []*entry) []delivery {
	out := make([]delivery, len(batch))
	for i, e := range batch {
		out[i] = delivery{raw: e.raw, id: ackID{s.number, e.id, e.serial}}
		if s.maxAttempts > 0 {
			out[i].attempt = uint64(e.failures) + 1
		}
	}
	return out
}

// appendDelivery appends a ReceivedMessage to a response.
func appendDelivery(response []byte, d delivery) []byte {
	id := d.id.String()
	size := protowire.SizeTag(fieldAckID) + protowire.SizeBytes(len(id)) +
		protowire.SizeTag(fieldMessage) + protowire.SizeBytes(len(d.raw))
	if d.attempt > 0 {
		size += protowire.SizeTag(fieldDeliveryAttempt) + protowire.SizeVarint(d.attempt)
	}
	response = protowire.AppendTag(response, fieldReceivedMessages, protowire.BytesType)
	response = protowire.AppendVarint(response, uint64(size))
	response = protowire.AppendTag(response, fieldAckID, protowire.BytesType)
	response = protowire.AppendString(response, id)
	response = protowire.AppendTag(response, fieldMessage, protowire.BytesType)
	response = protowire.AppendBytes(response, d.raw)
	if d.attempt > 0 {
		response = protowire.AppendTag(response, fieldDeliveryAttempt, protowire.VarintType)
		response = protowire.AppendVarint(response, d.attempt)
	}
	return response
}

func newFrame(deliveries []delivery) frame {
	size := 0
	for _, d := range deliveries {
		size += len(d.raw) + overhead
	}
	response := make([]byte, 0, size)
	for _, d := range deliveries {
		response = appendDelivery(response, d)
	}
	return response
}

func appendProperties(response frame, p *pubsubpb.StreamingPullResponse_SubscriptionProperties) frame {
	var properties []byte
	properties = protowire.AppendTag(properties, fieldExactlyOnce, protowire.VarintType)
	properties = protowire.AppendVarint(properties, protowire.EncodeBool(p.GetExactlyOnceDeliveryEnabled()))
	properties = protowire.AppendTag(properties, fieldOrdered, protowire.VarintType)
	properties = protowire.AppendVarint(properties, protowire.EncodeBool(p.GetMessageOrderingEnabled()))
	response = protowire.AppendTag(response, fieldProperties, protowire.BytesType)
	return protowire.AppendBytes(response, properties)
}

// countMessages counts the deliveries in a frame.
func countMessages(f frame) (n int) {
	for len(f) > 0 {
		number, _, field := protowire.ConsumeField(f)
		if field < 0 {
			return n
		}
		if number == fieldReceivedMessages {
			n++
		}
		f = f[field:]
	}
	return n
}
