package localpubsub

import (
	"strconv"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A message is kept as it was accepted, and never changes. All subscriptions of the topic share the
// message. It is kept in the encoding that consumers get. So a million small messages need little
// more memory than their bytes, and a delivery only copies bytes.
type message struct {
	id   uint64 // grows in publish order
	at   int64  // publish time, ns since 1970
	key  string // ordering key
	raw  []byte // a google.pubsub.v1.PubsubMessage
	refs atomic.Int32
	in   *store
}

// overhead is the approximate memory that a message takes in addition to its
// bytes.
const overhead = 200

// stampSize is the space for the message id and the publish time, in bytes.
const stampSize = 48

// The fields of a PubsubMessage that the service sets.
const (
	fieldMessageID   = 3
	fieldPublishTime = 4
	fieldSeconds     = 1
	fieldNanos       = 2
)

// encode encodes a message as the publisher sent it. The result has room for the fields that stamp
// appends.
func encode(m *pubsubpb.PubsubMessage) ([]byte, error) {
	m.MessageId, m.PublishTime = "", nil
	raw := make([]byte, 0, proto.Size(m)+stampSize)
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(raw, m)
}

// stamp appends the fields that the service sets. This is valid because the fields of a protobuf
// message may stand in any order.
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

// decode returns the message as a consumer reads it.
func (m *message) decode() (*pubsubpb.PubsubMessage, error) {
	decoded := new(pubsubpb.PubsubMessage)
	return decoded, proto.Unmarshal(m.raw, decoded)
}

func (m *message) size() int64 { return int64(len(m.raw)) + overhead }

// keep and drop count the references to the message. Subscriptions, snapshots and the topic hold
// references. The first keep adds the size of the message to the store's total, and the last drop
// subtracts it.
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
