package localpubsub

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// A record is one change of the state. Its kind decides which fields are set.
type record struct {
	kind     recordKind
	name     string   // of the resource
	body     []byte   // its configuration, as its protobuf message
	number   uint64   // of a run or a subscription
	at       int64    // a publish time, ns
	orphan   bool     // its topic is deleted
	detached bool     // from its topic, for good
	ids      []uint64 // of messages, oldest first
	acked    []uint64 // likewise
	raws     [][]byte // messages, or the revisions of a schema
}

type recordKind uint64

const (
	// recordRun begins a file: the number of the run and, in ids, the last
	// message id and the last subscription number that were used.
	recordRun recordKind = iota + 1
	// recordMessages carries messages; later records name them by id.
	recordMessages
	// recordTopic is a topic as it is now: ids are the retained messages, at is
	// the time of the last publish.
	recordTopic
	// recordSubscription is a subscription as it is now: ids are the
	// unacknowledged messages, acked are acknowledged ones that are retained.
	recordSubscription
	// recordSnapshot is a snapshot as it is now.
	recordSnapshot
	// recordSchema is a schema as it is now: raws are its revisions (a deleted
	// one without its definition), ids are their numbers.
	recordSchema
	// recordPolicy is the policy of a resource.
	recordPolicy
	// recordDeleted is the deletion of a resource of any kind, and of its
	// policy.
	recordDeleted
	// recordPublished adds messages to a topic, its subscriptions and its
	// snapshots.
	recordPublished
	// recordAcked settles ids in a subscription.
	recordAcked
	// recordForgotten drops the messages of a topic or a subscription that were
	// published up to a time.
	recordForgotten
	// recordReset deletes everything.
	recordReset
)

// The fields of a record. It is a protobuf message without a definition file.
const (
	recordFieldKind = iota + 1
	recordFieldName
	recordFieldBody
	recordFieldNumber
	recordFieldAt
	recordFieldOrphan
	recordFieldDetached
	recordFieldIDs
	recordFieldAcked
	recordFieldRaw
)

func (r *record) appendTo(b []byte) []byte {
	b = appendNumber(b, recordFieldKind, uint64(r.kind))
	b = appendText(b, recordFieldName, r.name)
	b = appendText(b, recordFieldBody, string(r.body))
	b = appendNumber(b, recordFieldNumber, r.number)
	b = appendNumber(b, recordFieldAt, uint64(r.at))
	b = appendNumber(b, recordFieldOrphan, protowire.EncodeBool(r.orphan))
	b = appendNumber(b, recordFieldDetached, protowire.EncodeBool(r.detached))
	b = appendIDs(b, recordFieldIDs, r.ids)
	b = appendIDs(b, recordFieldAcked, r.acked)
	for _, raw := range r.raws {
		b = protowire.AppendTag(b, recordFieldRaw, protowire.BytesType)
		b = protowire.AppendBytes(b, raw)
	}
	return b
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, text)
}

// appendIDs writes each id as its difference from the one before: mostly one
// byte.
func appendIDs(b []byte, field protowire.Number, ids []uint64) []byte {
	if len(ids) == 0 {
		return b
	}
	size, last := 0, uint64(0)
	for _, id := range ids {
		size += protowire.SizeVarint(id - last)
		last = id
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	last = 0
	for _, id := range ids {
		b = protowire.AppendVarint(b, id-last)
		last = id
	}
	return b
}

// parseRecord returns a record that shares memory with b.
func parseRecord(b []byte) (*record, error) {
	r := new(record)
	for len(b) > 0 {
		field, form, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		var err error
		switch form {
		case protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(b)
			err = r.setNumber(field, v)
		case protowire.BytesType:
			var v []byte
			v, n = protowire.ConsumeBytes(b)
			err = r.setBytes(field, v)
		default:
			err = unknownField(field)
		}
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if err != nil {
			return nil, err
		}
		b = b[n:]
	}
	return r, nil
}

func unknownField(field protowire.Number) error {
	return fmt.Errorf("a record has no field %d of that form; a later version may have written the file", field)
}

func (r *record) setNumber(field protowire.Number, v uint64) error {
	switch field {
	case recordFieldKind:
		r.kind = recordKind(v)
	case recordFieldNumber:
		r.number = v
	case recordFieldAt:
		r.at = int64(v)
	case recordFieldOrphan:
		r.orphan = protowire.DecodeBool(v)
	case recordFieldDetached:
		r.detached = protowire.DecodeBool(v)
	default:
		return unknownField(field)
	}
	return nil
}

func (r *record) setBytes(field protowire.Number, v []byte) (err error) {
	switch field {
	case recordFieldName:
		r.name = string(v)
	case recordFieldBody:
		r.body = v
	case recordFieldIDs:
		r.ids, err = parseIDs(v)
	case recordFieldAcked:
		r.acked, err = parseIDs(v)
	case recordFieldRaw:
		r.raws = append(r.raws, v)
	default:
		return unknownField(field)
	}
	return err
}

func parseIDs(b []byte) (ids []uint64, err error) {
	last := uint64(0)
	for len(b) > 0 {
		more, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		last += more
		ids, b = append(ids, last), b[n:]
	}
	return ids, nil
}
