package schema

import (
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A revision never changes. A deleted revision keeps only its id and number, because the range of
// revisions that a topic allows may still name it.
type revision struct {
	id         string
	number     int // from 1, in the order of commits
	at         time.Time
	definition string
	root       protoreflect.MessageDescriptor // nil when deleted
	binary     map[string]string              // the attributes that a message in binary encoding gets
	json       map[string]string              // the attributes that a message in JSON gets
}

func (r *revision) cost() int { return len(r.definition) + revisionCost }

// newRevision returns a revision without id and number.
func newRevision(definition string, root protoreflect.MessageDescriptor) *revision {
	return &revision{definition: definition, root: root}
}

// named returns a copy of the revision with its schema, id, number and time.
func (r *revision) named(schema, id string, number int, at time.Time) *revision {
	return &revision{
		id: id, number: number, at: at, definition: r.definition, root: r.root,
		binary: schemaAttributes(schema, id, pubsubpb.Encoding_BINARY),
		json:   schemaAttributes(schema, id, pubsubpb.Encoding_JSON),
	}
}

// schemaAttributes returns the attributes that the service adds to a validated
// message (https://cloud.google.com/pubsub/docs/schemas-valid).
func schemaAttributes(schema, id string, encoding pubsubpb.Encoding) map[string]string {
	return map[string]string{
		"googclient_schemaname":       schema,
		"googclient_schemaencoding":   encoding.String(),
		"googclient_schemarevisionid": id,
	}
}

func (r *revision) describe(schema string, view pubsubpb.SchemaView) *pubsubpb.Schema {
	described := &pubsubpb.Schema{
		Name: schema, Type: pubsubpb.Schema_PROTOCOL_BUFFER,
		RevisionId: r.id, RevisionCreateTime: timestamppb.New(r.at),
	}
	if view == pubsubpb.SchemaView_FULL {
		described.Definition = r.definition
	}
	return described
}

// A history has the revisions of a schema, oldest first. It includes up to maxRevisions deleted
// revisions. If there are more deleted revisions, the oldest one is dropped. A history never
// changes. A schema that exists has at least one revision that is not deleted.
type history []*revision

// len returns the number of revisions that are not deleted.
func (h history) len() int {
	n := 0
	for _, r := range h {
		if r.root != nil {
			n++
		}
	}
	return n
}

func (h history) newest() *revision {
	for _, r := range slices.Backward(h) {
		if r.root != nil {
			return r
		}
	}
	return nil
}

// find returns the revision with this id. It returns nil if the revision was deleted or never
// existed.
func (h history) find(id string) *revision {
	if i := h.index(id); i >= 0 && h[i].root != nil {
		return h[i]
	}
	return nil
}

// index returns the index of the revision with this id, even if the revision is deleted. It returns
// -1 if the id is unknown.
func (h history) index(id string) int {
	return slices.IndexFunc(h, func(r *revision) bool { return r.id == id })
}

func (h history) with(added *revision) history {
	return append(slices.Clip(h), added)
}

// without returns a copy of the history in which the revision at i is deleted.
func (h history) without(i int) history {
	shorter := slices.Clone(h)
	shorter[i] = &revision{id: h[i].id, number: h[i].number}
	if len(shorter)-shorter.len() > maxRevisions {
		oldest := slices.IndexFunc(shorter, func(r *revision) bool { return r.root == nil })
		shorter = slices.Delete(shorter, oldest, oldest+1)
	}
	return shorter
}

// nextNumber returns the number for the next revision.
func (h history) nextNumber() int {
	if len(h) == 0 {
		return 1
	}
	return h[len(h)-1].number + 1
}

// nextID returns a new id for a revision. An id is the first eight characters of a UUID, as
// documented (https://cloud.google.com/pubsub/docs/commit-schema-revision).
func (h history) nextID() string {
	for {
		if id := uuid.NewString()[:8]; h.index(id) < 0 {
			return id
		}
	}
}

// between returns the revisions from first to last, which are the revisions that a topic allows. If
// first or last was deleted, the next revision within the range takes its place
// (https://cloud.google.com/pubsub/docs/delete-schema-revision).
func (h history) between(first, last string) history {
	from, to := 0, len(h)
	if first != "" {
		from = max(h.index(first), 0) // -1: dropped, so older than all revisions in the history
	}
	if last != "" {
		to = h.index(last) + 1
	}
	if from >= to {
		return nil
	}
	return h[from:to]
}
