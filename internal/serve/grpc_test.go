package serve_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/lockstep/internal/problem"
)

func startEcho(t testing.TB, logs io.Writer, e echo) *grpc.ClientConn {
	t.Helper()
	s := newService(logs)
	e.register(s.grpc)
	return dial(t, s.start(t))
}

func violated(err error) []string {
	var fields []string
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.FieldViolations {
				fields = append(fields, v.Field)
			}
		}
	}
	return fields
}

func TestUndecodableRequestsAreTheClientsFault(t *testing.T) {
	t.Parallel()
	conn := startEcho(t, io.Discard, func(_ context.Context, text string) (string, error) { return text, nil })
	for name, raw := range map[string]string{
		"malformed protobuf": "\x0a\x7f" + "cut short",
		"invalid UTF-8":      "\x0a\x02\xff\xfe",
	} {
		// Unknown fields are marshalled unchanged, with any content.
		in := &emptypb.Empty{}
		in.ProtoReflect().SetUnknown([]byte(raw))
		err := conn.Invoke(t.Context(), "/test.Echo/Say", in, &emptypb.Empty{})
		if got := status.Code(err); got != codes.InvalidArgument {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
		}
		if diff := cmp.Diff([]string{"request"}, violated(err)); diff != "" {
			t.Errorf("%s: field violations (-want +got):\n%s", name, diff)
		}
	}
	if got, err := say(t.Context(), conn, "still here"); err != nil || got != "still here" {
		t.Errorf("a good request afterwards: %q, %v", got, err)
	}
}

func TestOversizeMessagesAreRefused(t *testing.T) {
	t.Parallel()
	conn := startEcho(t, io.Discard, func(context.Context, string) (string, error) { return "", nil })
	if _, err := say(t.Context(), conn, strings.Repeat("x", 64<<10)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("64 KiB and a header: %v, want RESOURCE_EXHAUSTED", err)
	}
	if _, err := say(t.Context(), conn, strings.Repeat("x", 64<<10-16)); err != nil {
		t.Errorf("just under 64 KiB: %v", err)
	}
}

func TestHandlerErrorsBecomeProblems(t *testing.T) {
	t.Parallel()
	returned := map[string]error{
		"problem": problem.New(problem.CodeGone, "VIDEO_DELETED", "The video was deleted."),
		"foreign": status.Error(codes.NotFound, "s3cret of another service"),
		"unknown": errors.New("s3cret"),
	}
	conn := startEcho(t, io.Discard, func(_ context.Context, text string) (string, error) { return "", returned[text] })
	got := map[string]string{}
	for name := range returned {
		_, err := say(t.Context(), conn, name)
		got[name] = status.Code(err).String() + " " + problem.ReasonOf(err)
		if strings.Contains(status.Convert(err).Proto().String(), "s3cret") {
			t.Errorf("%s: the status shows the cause: %v", name, err)
		}
	}
	want := map[string]string{"problem": "NotFound VIDEO_DELETED", "foreign": "Internal INTERNAL", "unknown": "Internal INTERNAL"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

func TestAPanicFailsItsOwnCallOnly(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	conn := startEcho(t, &logs, func(_ context.Context, text string) (string, error) {
		if text == "panic" {
			panic("s3cret")
		}
		return text, nil
	})
	_, err := say(t.Context(), conn, "panic")
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a panicking call: %v, want INTERNAL without the panic's text", err)
	}
	if got, err := say(t.Context(), conn, "alive"); err != nil || got != "alive" {
		t.Errorf("the next call: %q, %v", got, err)
	}
	if !strings.Contains(logs.String(), "s3cret") || !strings.Contains(logs.String(), "grpc_test.go") {
		t.Errorf("the log lacks the panic or its stack:\n%s", logs.String())
	}
}

func TestACallWithoutADeadlineGetsOne(t *testing.T) {
	t.Parallel()
	conn := startEcho(t, io.Discard, func(ctx context.Context, _ string) (string, error) {
		if _, ok := ctx.Deadline(); !ok {
			return "", errors.New("no deadline")
		}
		return "", nil
	})
	if _, err := say(context.WithoutCancel(t.Context()), conn, ""); err != nil {
		t.Errorf("Say without a deadline: %v", err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	s.grpc.Reflect()
	echo(func(context.Context, string) (string, error) { return "", nil }).register(s.grpc)
	conn := dial(t, s.start(t))
	health := grpc_health_v1.NewHealthClient(conn)
	for _, service := range []string{"", "test.Echo"} {
		res, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || res.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, res, err)
		}
	}
	// NOT_FOUND has a meaning of its own in the health protocol.
	_, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "none"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("health of an unknown service: %v, want NOT_FOUND", err)
	}
	if diff := cmp.Diff([]string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", "test.Echo"}, reflected(t, conn)); diff != "" {
		t.Errorf("reflected services (-want +got):\n%s", diff)
	}
}

func reflected(t testing.TB, conn *grpc.ClientConn) []string {
	t.Helper()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := &grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range response.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	_ = stream.CloseSend()
	return names
}

func TestAPanickingStreamFailsAlone(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Streams",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Panic", ServerStreams: true,
			Handler: func(any, grpc.ServerStream) error { panic("boom") }}},
	}, nil)
	conn := dial(t, s.start(t))
	for range 2 {
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test.Streams/Panic")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); problem.ReasonOf(err) != "INTERNAL" {
			t.Errorf("a panicking stream: %v, want INTERNAL", err)
		}
	}
}
