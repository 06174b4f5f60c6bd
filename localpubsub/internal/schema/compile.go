package schema

import (
	"context"
	"errors"
	"io"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"example.com/lockstep/localpubsub/internal/resource"
)

// definitionFile is the name of the definition's file in errors.
const definitionFile = "schema.proto"

// compileRevision compiles a definition to a revision without an id. The definition is in proto2,
// proto3 or an edition. It must have exactly one top-level type, which is a message, and no imports
// (https://cloud.google.com/pubsub/docs/schemas). Services and options are ignored.
func compileRevision(ctx context.Context, schema *pubsubpb.Schema) (*revision, error) {
	if err := checkKind(schema); err != nil {
		return nil, err
	}
	definition := schema.GetDefinition()
	if definition == "" {
		return nil, resource.Invalid("schema.definition", "is needed")
	}
	if len(definition) > maxDefinition {
		return nil, resource.Invalid("schema.definition", "%d bytes, a definition has at most %d", len(definition), maxDefinition)
	}
	root, err := compile(ctx, definition)
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		return nil, resource.Invalid("schema.definition", "Invalid schema definition: %v", err)
	}
	return newRevision(definition, root), nil
}

func checkKind(schema *pubsubpb.Schema) error {
	switch {
	case schema == nil:
		return resource.Invalid("schema", "is needed")
	case schema.GetType() == pubsubpb.Schema_AVRO:
		return status.Error(codes.Unimplemented, "schema.type: this server knows PROTOCOL_BUFFER schemas, not AVRO")
	case schema.GetType() != pubsubpb.Schema_PROTOCOL_BUFFER:
		return resource.Invalid("schema.type", "%v is no type of schemas", schema.GetType())
	case schema.GetConfiguration() != nil:
		return status.Error(codes.Unimplemented, "schema.configuration: this server takes the source text, as schema.definition")
	}
	return nil
}

func compile(ctx context.Context, definition string) (protoreflect.MessageDescriptor, error) {
	compiler := protocompile.Compiler{
		MaxParallelism: 1,
		Resolver: protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
			if path != definitionFile {
				return protocompile.SearchResult{}, errors.New("a schema cannot import")
			}
			return protocompile.SearchResult{Source: io.Reader(strings.NewReader(definition))}, nil
		}),
	}
	files, err := compiler.Compile(ctx, definitionFile)
	if err != nil {
		return nil, err
	}
	// The descriptors of the compiler are larger and slower than the ones of protodesc.
	file, err := protodesc.NewFile(protodesc.ToFileDescriptorProto(files[0]), new(protoregistry.Files))
	if err != nil {
		return nil, err
	}
	if file.Messages().Len() != 1 || file.Enums().Len() > 0 || file.Extensions().Len() > 0 {
		return nil, errors.New("a schema has one top-level type, which is a message")
	}
	return file.Messages().Get(0), nil
}
