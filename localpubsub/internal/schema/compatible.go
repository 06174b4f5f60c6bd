package schema

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"example.com/lockstep/localpubsub/internal/resource"
)

// accept returns an error if the revision must not be added to the schema. "You can add or remove
// optional fields. You cannot add or delete other fields. You also cannot edit any existing field."
// (https://cloud.google.com/pubsub/docs/commit-schema-revision) accept takes this rule literally.
// It also follows two observations by users of the service. First, the service compares a new
// revision also with revisions older than the newest (https://github.com/Rtosshy/gcp-test,
// README.md, experiment 7). Second, a new value of an enum counts as an edit of the fields with
// this enum (Stack Overflow, "Backward and forward compatibility issues with protobufs in Google
// Pub/Sub").
//
// So repeated fields and maps can be neither added nor removed. Google's page does not name these
// fields. If accept allowed a change that the service refuses, this would be worse than the
// opposite. accept compares the names of messages only if a field has a message type. The name of
// the top-level type may change, because no message contains this type.
func (h history) accept(added *revision) error {
	for _, old := range slices.Backward(h) {
		if old.root == nil {
			continue
		}
		c := comparison{}
		if why := c.messages(old.root, added.root); why != "" {
			return resource.Invalid("schema.definition", "Revision is incompatible with previous revision: %s. %s", old.id, why)
		}
	}
	return nil
}

// A comparison has the pairs of messages whose comparison has begun. It ends the recursion for
// types that contain themselves.
type comparison map[[2]protoreflect.FullName]bool

// messages returns the reason why the message after is incompatible with the older message before.
// It returns "" if the messages are compatible.
func (c comparison) messages(before, after protoreflect.MessageDescriptor) string {
	pair := [2]protoreflect.FullName{before.FullName(), after.FullName()}
	if c[pair] {
		return ""
	}
	c[pair] = true
	for field := range descriptors(before.Fields()) {
		same := after.Fields().ByNumber(field.Number())
		if same == nil {
			if why := loose(field, after); why != "" {
				return why
			}
			continue
		}
		if why := c.fields(field, same); why != "" {
			return fmt.Sprintf("%s: %s", field.FullName(), why)
		}
	}
	for field := range descriptors(after.Fields()) {
		if before.Fields().ByNumber(field.Number()) == nil {
			if why := loose(field, before); why != "" {
				return why
			}
		}
	}
	return ""
}

// loose checks a field that the message other does not have. It returns the reason why the field
// may be neither added nor removed, or "" if it may be.
func loose(field protoreflect.FieldDescriptor, other protoreflect.MessageDescriptor) string {
	if field.Cardinality() != protoreflect.Optional {
		return fmt.Sprintf("%s is %v; only optional fields may be added or removed", field.FullName(), field.Cardinality())
	}
	if same := other.Fields().ByName(field.Name()); same != nil {
		return fmt.Sprintf("%s has number %d and %d", field.FullName(), same.Number(), field.Number())
	}
	return ""
}

func (c comparison) fields(before, after protoreflect.FieldDescriptor) string {
	for _, property := range [...]struct {
		of            string
		before, after any
	}{
		{"type", before.Kind(), after.Kind()},
		{"name", before.Name(), after.Name()},
		{"JSON name", before.JSONName(), after.JSONName()},
		{"label", before.Cardinality(), after.Cardinality()},
		{"explicit presence", before.HasPresence(), after.HasPresence()},
		{"being a map", before.IsMap(), after.IsMap()},
		{"oneof", oneofOf(before), oneofOf(after)},
	} {
		if property.before != property.after {
			return fmt.Sprintf("its %s was %v, and is %v", property.of, property.before, property.after)
		}
	}
	switch {
	case before.Message() != nil:
		if before.Message().Name() != after.Message().Name() {
			return fmt.Sprintf("its type was %s, and is %s", before.Message().FullName(), after.Message().FullName())
		}
		return c.messages(before.Message(), after.Message())
	case before.Enum() != nil:
		return enums(before.Enum(), after.Enum())
	}
	return ""
}

func oneofOf(field protoreflect.FieldDescriptor) protoreflect.Name {
	if in := field.ContainingOneof(); in != nil && !in.IsSynthetic() {
		return in.Name()
	}
	return ""
}

func enums(before, after protoreflect.EnumDescriptor) string {
	if before.Name() != after.Name() {
		return fmt.Sprintf("its type was %s, and is %s", before.FullName(), after.FullName())
	}
	if why := subset(before, after); why != "" {
		return why
	}
	return subset(after, before)
}

func subset(some, all protoreflect.EnumDescriptor) string {
	for value := range descriptors(some.Values()) {
		if same := all.Values().ByName(value.Name()); same == nil || same.Number() != value.Number() {
			return fmt.Sprintf("%s = %d is missing in one revision of %s", value.Name(), value.Number(), all.FullName())
		}
	}
	return ""
}

// descriptors iterates over a list of descriptors.
func descriptors[T any](list interface {
	Len() int
	Get(i int) T
}) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}
