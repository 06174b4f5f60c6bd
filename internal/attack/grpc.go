package attack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip" // the import also registers gzip, as the Pub/Sub client does
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// sizes are the sizes of the messages that are sent. The first size is the largest that a server
// accepts. The second would be costly if a server accepted it.
var sizes = []int{64 << 10, 2 << 20}

// maxNesting bounds the walk through nested messages, because a message may contain itself.
const maxNesting = 3

// room is the number of bytes that are left for the tags of the fields around the filled field.
const room = 64

// reflectionTimeout bounds the call of Reflected. It is long enough for a server that is still starting.
const reflectionTimeout = 20 * time.Second

// unknownField is a field number that no message uses.
const unknownField = 1000

// GRPC calls each unary method of the services that the server behind conn lists by reflection. For
// each field it builds messages in which this field is as large as possible. Such a field has many
// elements, or one large value. It sends each message uncompressed and compressed. The test fails
// if a call allocates more bytes than the limit most, or ends with INTERNAL or UNAVAILABLE.
func GRPC(t *testing.T, conn *grpc.ClientConn, most uint64) {
	t.Helper()
	methods := 0
	for _, service := range services(t, conn) {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			if method.IsStreamingClient() || method.IsStreamingServer() {
				t.Errorf("%s is a stream, which this attack does not know", method.FullName())
				continue
			}
			methods++
			attackMethod(t, conn, method, most)
		}
	}
	if methods == 0 {
		t.Error("no method was found")
	}
}

func attackMethod(t *testing.T, conn *grpc.ClientConn, method protoreflect.MethodDescriptor, most uint64) {
	t.Helper()
	name := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	for _, size := range sizes {
		for field, message := range messages(method.Input(), size) {
			attackField(t, conn, name, field, message, most)
		}
	}
}

func attackField(t *testing.T, conn *grpc.ClientConn, method, field string, message []byte, most uint64) {
	t.Helper()
	for how, options := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
		options = append(options, grpc.ForceCodecV2(raw{}), grpc.MaxCallSendMsgSize(len(message)))
		call := fmt.Sprintf("%s with %d bytes of %s, %s,", method, len(message), field, how)
		judge(t, call, most, func() {
			var answer []byte
			err := conn.Invoke(t.Context(), method, message, &answer, options...)
			if code := status.Code(err); code == codes.Internal || code == codes.Unavailable {
				t.Errorf("%s %v", call, err)
			}
		})
	}
}

// messages returns encoded requests of about size bytes. The key of a request is the path of the
// field that fills the request. One request is filled by a field that the message does not have,
// and its key is "an unknown field".
func messages(of protoreflect.MessageDescriptor, size int) map[string][]byte {
	unknown := protowire.AppendTag(nil, unknownField, protowire.BytesType)
	found := map[string][]byte{"an unknown field": repeat(unknown, []byte{0}, size)}
	fill(found, of, "", func(inner []byte) []byte { return inner }, size, maxNesting)
	return found
}

// fill adds encoded messages to found. of is a message type. Each message that fill adds is full of
// one field of this type, or of one field of a type that is nested in it, down to depth levels.
// fill leaves out single numbers and bools, because they cannot be large. within wraps an encoded
// message of this type in the messages that contain it.
func fill(found map[string][]byte, of protoreflect.MessageDescriptor, path string, within func([]byte) []byte, size, depth int) {
	for i := range of.Fields().Len() {
		f := of.Fields().Get(i)
		name := path + string(f.Name())
		tag, own := protowire.AppendTag(nil, f.Number(), protowire.BytesType), protowire.AppendTag(nil, f.Number(), wireType(f.Kind()))
		switch {
		case f.IsList() || f.IsMap():
			found[name+" (elements)"] = within(repeat(own, zero(f.Kind()), size))
			if f.IsPacked() {
				found[name+" (packed)"] = within(protowire.AppendBytes(slices.Clone(tag), make([]byte, size-room)))
			}
		case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
			found[name] = within(protowire.AppendBytes(slices.Clone(tag), make([]byte, size-room)))
		case f.Message() != nil:
			found[name+" (again and again)"] = within(repeat(tag, []byte{0}, size))
		}
		if f.Message() != nil && depth > 0 {
			fill(found, f.Message(), name+".", func(inner []byte) []byte {
				return within(protowire.AppendBytes(slices.Clone(tag), inner))
			}, size, depth-1)
		}
	}
}

func repeat(tag, value []byte, size int) []byte {
	one := slices.Concat(tag, value)
	return bytes.Repeat(one, (size-room)/len(one))
}

func wireType(kind protoreflect.Kind) protowire.Type {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	default:
		return protowire.VarintType
	}
}

func zero(kind protoreflect.Kind) []byte {
	sizes := map[protowire.Type]int{protowire.Fixed32Type: 4, protowire.Fixed64Type: 8}
	return make([]byte, cmp.Or(sizes[wireType(kind)], 1))
}

// services returns the services that the server lists by reflection, except gRPC's own.
func services(t testing.TB, conn *grpc.ClientConn) (found []protoreflect.ServiceDescriptor) {
	t.Helper()
	names, err := Reflected(t.Context(), conn)
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	for _, name := range names {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, d.(protoreflect.ServiceDescriptor))
	}
	return found
}

// Reflected waits for the server behind conn and returns the services that the server lists by
// reflection, except gRPC's own.
func Reflected(ctx context.Context, conn *grpc.ClientConn) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, reflectionTimeout)
	defer cancel()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	list := &grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(list); err != nil && !errors.Is(err, io.EOF) { // Recv returns the reason
		return nil, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	for _, s := range answer.GetListServicesResponse().GetService() {
		if !strings.HasPrefix(s.GetName(), "grpc.") {
			names = append(names, s.GetName())
		}
	}
	return names, stream.CloseSend()
}

type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
