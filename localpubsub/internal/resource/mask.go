package resource

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// ApplyMask copies the fields that mask names. It reads them from the message from, and writes them to
// the message to, which is of the same type. The mask may name the top-level fields in fields, and parts
// of these fields. If a field is unset in from, ApplyMask clears it in to.
func ApplyMask(to, from proto.Message, mask *fieldmaskpb.FieldMask, fields []string) error {
	if len(mask.GetPaths()) == 0 {
		return Invalid("update_mask", "it names no field")
	}
	for _, path := range mask.GetPaths() {
		if !mutable(path, fields) {
			return Invalid("update_mask", "%s cannot be changed", path)
		}
		if !copyField(to.ProtoReflect(), from.ProtoReflect(), strings.Split(path, ".")) {
			return Invalid("update_mask", "there is no field %s", path)
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
	// Without the copy, maps and messages would be shared with the request.
	to.Set(field, proto.Clone(from.Interface()).ProtoReflect().Get(field))
	return true
}

// MaskNames reports whether a mask names a field or a part of it.
func MaskNames(mask *fieldmaskpb.FieldMask, field string) bool {
	return slices.ContainsFunc(mask.GetPaths(), func(path string) bool { return path == field || strings.HasPrefix(path, field+".") })
}

// These are the top-level fields that the update mask of a resource may name.
var (
	TopicFields = []string{
		"labels", "message_storage_policy", "kms_key_name", "schema_settings", "message_retention_duration",
		"ingestion_data_source_settings", "message_transforms", "tags",
	}
	SubscriptionFields = []string{
		"push_config", "bigquery_config", "cloud_storage_config", "bigtable_config", "ack_deadline_seconds",
		"retain_acked_messages", "message_retention_duration", "labels", "expiration_policy", "dead_letter_policy",
		"retry_policy", "enable_exactly_once_delivery", "message_transforms", "tags",
	}
	SnapshotFields = []string{"labels", "expire_time"}
)

func mutable(path string, fields []string) bool {
	first, _, _ := strings.Cut(path, ".")
	return slices.Contains(fields, first)
}
