package localpubsub

import (
	"strconv"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A message as it was accepted: never changed, shared by all that keep it, and
// kept as the bytes that consumers get. A million small messages then cost
// little more than their bytes, and delivering one is a copy.
type message struct {
	id   uint64 // grows in publish order
	at   int64  // publish time, ns since 1970
	key  string // ordering key
	raw  []byte // a google.pubsub.v1.PubsubMessage
	refs atomic.Int32
	// dumped is the generation of the journal's file that it was written to last.
	dumped uint32
	in     *store
}

// overhead is about what a message costs beside its bytes.
const overhead = 200

// stampSize is room for the id and the publish time.
const stampSize = 48

// The fields of a PubsubMessage that the service sets.
const (
	fieldMessageID   = 3
	fieldPublishTime = 4
	fieldSeconds     = 1
	fieldNanos       = 2
)

// encode puts a message as the publisher sent it on the wire, with room for the
// stamp.
func encode(m *pubsubpb.PubsubMessage) ([]byte, error) {
	m.MessageId, m.PublishTime = "", nil
	raw := make([]byte, 0, proto.Size(m)+stampSize)
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(raw, m)
}

// stamp adds what the service gives a message. Fields of a protobuf message may
// stand in any order.
func stamp(raw []byte, id uint64, at int64) []byte {
	raw = protowire.AppendTag(raw, fieldMessageID, protowire.BytesType)
	raw = protowire.AppendString(raw, messageID(id))
	var stamped [2 * (1 + 10)]byte
	when := protowire.AppendTag(stamped[:0], fieldSeconds, protowire.VarintType)
	when = protowire.AppendVarint(when, uint64(at/int64(time.Second)))
	when = protowire.AppendTag(when, fieldNanos, protowire.VarintType)
	when = protowire.AppendVarint(when, uint64(at%int64(time.Second)))
	raw = protowire.AppendTag(raw, fieldPublishTime, protowire.BytesType)
	return protowire.AppendBytes(raw, when)
}

func messageID(id uint64) string { return strconv.FormatUint(id, 10) }

// decode is the message as a consumer reads it.
func (m *message) decode() (*pubsubpb.PubsubMessage, error) {
	decoded := new(pubsubpb.PubsubMessage)
	return decoded, proto.Unmarshal(m.raw, decoded)
}

func (m *message) size() int64 { return int64(len(m.raw)) + overhead }

// keep and drop count who keeps the message: a subscription, a snapshot, its
// topic. The last to drop it gives its room back.
func (m *message) keep() {
	if m.refs.Add(1) == 1 {
		m.in.bytes.Add(m.size())
	}
}

func (m *message) drop() {
	if m.refs.Add(-1) == 0 {
		m.in.bytes.Add(-m.size())
	}
}

// store accounts for the memory of all messages of a server.
type store struct {
	bytes atomic.Int64
	limit int64
}

func (s *store) full() bool { return s.bytes.Load() >= s.limit }
