package localpubsub

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// applyMask copies the fields that the mask names between two messages of one
// type. A field that is unset in the source is cleared.
func applyMask(to, from proto.Message, mask *fieldmaskpb.FieldMask, fields []string) error {
	if len(mask.GetPaths()) == 0 {
		return invalid("update_mask", "it names no field")
	}
	for _, path := range mask.GetPaths() {
		if !mutable(path, fields) {
			return invalid("update_mask", "%s cannot be changed", path)
		}
		if !copyField(to.ProtoReflect(), from.ProtoReflect(), strings.Split(path, ".")) {
			return invalid("update_mask", "there is no field %s", path)
		}
	}
	return nil
}

func copyField(to, from protoreflect.Message, path []string) bool {
	field := to.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	if field == nil {
		return false
	}
	if len(path) > 1 {
		if field.Message() == nil || field.IsList() || field.IsMap() {
			return false
		}
		return copyField(to.Mutable(field).Message(), from.Get(field).Message(), path[1:])
	}
	if !from.Has(field) {
		to.Clear(field)
		return true
	}
	// A copy, because maps and messages would be shared with the request.
	to.Set(field, proto.Clone(from.Interface()).ProtoReflect().Get(field))
	return true
}
