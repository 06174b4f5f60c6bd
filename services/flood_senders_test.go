package services_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	videov1 "example.com/lockstep/proto/video/v1"
)

// drip is the pause between two bytes of a slow connection.
const drip = 500 * time.Millisecond

// openSlow keeps n connections open until ctx ends: those with slow headers, slow bodies,
// answers that are not read, and gRPC calls without their message, a quarter each. One that
// the server cuts off is opened again.
func (f *flood) openSlow(ctx context.Context, all *sync.WaitGroup, n int) {
	kinds := []func(net.Conn) error{f.slowHeaders, f.slowBody, f.unread, f.halfOpen}
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				f.hold(ctx, kinds[i%len(kinds)])
			}
		})
	}
}

// hold opens a connection, begins with it, and sends a byte at times until the server ends it.
func (f *flood) hold(ctx context.Context, begin func(net.Conn) error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.addr)
	if err != nil {
		if ctx.Err() == nil {
			f.Error(err)
		}
		return
	}
	defer conn.Close()
	if err := begin(conn); err != nil {
		f.cut.Add(1)
		return
	}
	f.opened.Add(1)
	tick := time.NewTicker(drip)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			f.cut.Add(1)
			return
		}
	}
}

func (*flood) slowHeaders(conn net.Conn) error {
	_, err := io.WriteString(conn, "GET /v1/videos HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	return err
}

// slowBody is of a user: without a token the answer would come before the body.
func (f *flood) slowBody(conn net.Conn) error {
	_, err := io.WriteString(conn, "POST /v1/videos HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
		"Content-Length: 200000\r\nAuthorization: "+f.token()+"\r\n\r\n")
	return err
}

func (*flood) unread(conn net.Conn) error {
	_, err := io.WriteString(conn, strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 400))
	return err
}

// halfOpen begins calls whose messages never come: of a user, and to health, which is for
// strangers, too.
func (f *flood) halfOpen(conn net.Conn) error {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	err := framer.WriteSettings()
	for i, path := range []string{"/video.v1.VideoService/GetVideo", "/grpc.health.v1.Health/Check"} {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, h := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":path", Value: path}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "x"},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "authorization", Value: f.token()},
		} {
			err = errors.Join(err, encoder.WriteField(h))
		}
		err = errors.Join(err, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true}))
	}
	return err
}

// junk are requests that strangers send without a token that counts.
var junk = strings.NewReplacer("|", " HTTP/1.1\r\nHost: x\r\n").Replace(
	"GET /v1/videos|\r\n" + "GET /v1/videos|Authorization: Bearer x\r\n\r\n" + "DELETE /v1/videos/1|Authorization: Bearer a.b.c\r\n\r\n" +
		"GET /nowhere|\r\n" + "PUT /v1/videos|Content-Length: 2\r\n\r\n{}" + "GET /v1/users/1/engagements?%zz|\r\n" +
		"POST /v1/videos|Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" + "BREW /v1/videos|\r\n" + "OPTIONS /v1/videos|Origin: https://x.example\r\n\r\n" +
		"GET /v1/videos?q=" + strings.Repeat("x", 1000) + "|\r\n")

// junkAtOnce is the number of requests in junk.
const junkAtOnce = 10

// sendJunk sends that many requests a second until ctx ends, or as many as are answered. A
// sender that was delayed sends what is due since, so that the rate holds on a busy machine.
func (f *flood) sendJunk(ctx context.Context, all *sync.WaitGroup, perSecond int) {
	const conns = 10
	for range conns {
		all.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.addr)
			if err != nil {
				f.Error(err)
				return
			}
			defer conn.Close()
			all.Go(func() { f.countRefusals(conn) })
			every := time.Second * conns * junkAtOnce / time.Duration(perSecond)
			for due := time.Now(); ; due = due.Add(every) {
				select {
				case <-time.After(time.Until(due)):
				case <-ctx.Done():
					return
				}
				if _, err := io.WriteString(conn, junk); err != nil {
					f.Errorf("junk: %v", err)
					return
				}
			}
		})
	}
}

// countRefusals reads the answers to junk until the connection ends.
func (f *flood) countRefusals(conn net.Conn) {
	buf, rest := make([]byte, 64<<10), []byte(nil)
	status := []byte("HTTP/1.1 4")
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		seen := slices.Concat(rest, buf[:n])
		f.junk.Add(int64(bytes.Count(seen, status)))
		if bytes.Contains(seen, []byte("HTTP/1.1 5")) {
			f.Errorf("junk is answered %.200s", seen)
		}
		rest = bytes.Clone(seen[max(0, len(seen)-len(status)+1):])
	}
}

// attack sends the calls that once took hundreds of megabytes: masks of many elements, plain
// and compressed, and streams of reflection.
func (f *flood) attack(ctx context.Context, all *sync.WaitGroup) {
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	mask := func(elements int) *videov1.UpdateVideoRequest {
		return &videov1.UpdateVideoRequest{UpdateMask: &fieldmaskpb.FieldMask{Paths: make([]string, elements)}}
	}
	small, large := mask(30_000), mask(200_000)
	update := func(request *videov1.UpdateVideoRequest, options ...grpc.CallOption) error {
		_, err := videov1.NewVideoServiceClient(conn).UpdateVideo(metadata.AppendToOutgoingContext(ctx, "authorization", f.token()), request, options...)
		return err
	}
	calls := map[codes.Code]func() error{
		codes.InvalidArgument: func() error { return update(small) },
		codes.Unimplemented:   func() error { return update(large, grpc.UseCompressor(gzip.Name)) },
	}
	var running sync.WaitGroup
	for want, call := range calls {
		for range 2 {
			running.Go(func() {
				for ctx.Err() == nil {
					if code := status.Code(call()); code != want && ctx.Err() == nil {
						f.Errorf("an attack is answered %s, want %s", code, want)
					}
					f.attacks.Add(1)
				}
			})
		}
	}
	running.Go(func() {
		for ctx.Err() == nil {
			f.reflect(ctx, conn)
		}
	})
	all.Go(func() {
		running.Wait()
		_ = conn.Close()
	})
}

// reflect sends requests over one stream of reflection until the server ends it.
func (f *flood) reflect(ctx context.Context, conn *grpc.ClientConn) {
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	for err == nil {
		err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	}
	f.attacks.Add(1)
}
