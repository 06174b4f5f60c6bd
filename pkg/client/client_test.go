package client_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/client"
	"example.com/lockstep/pkg/eventing/consistency"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	token := func(context.Context) (string, error) { return "t", nil }
	for o, want := range map[*client.Options]string{
		{Video: "localhost", Catalog: "localhost:8081"}:                             "Video",
		{Video: "localhost:8080"}:                                                   "Catalog",
		{Video: "127.0.0.1:8080", Catalog: "catalog.example.org:443", Token: token}: "TLS",
		{Video: "192.0.2.1:8080", Catalog: "localhost:8081", Token: token}:          "TLS",
	} {
		if c, err := client.New(*o); err == nil || !strings.Contains(err.Error(), "client: "+want+":") {
			t.Errorf("%+v: %v, %v, want an error that names %s", *o, c, err, want)
		}
	}
	for _, o := range []client.Options{
		{Video: "[::1]:8080", Catalog: "localhost:8081", Token: token},
		{Video: "video.example.org:443", Catalog: "catalog.example.org:443", Token: token, TLS: &tls.Config{MinVersion: tls.VersionTLS12}},
		{Video: "video:8080", Catalog: "catalog:8080"},
	} {
		c, err := client.New(o)
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	with := func(domain string) error {
		s, err := status.New(codes.Aborted, "no").WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: "VERSION_MISMATCH"})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Errorf("update: %w", s.Err())
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{with("lockstep"), "VERSION_MISMATCH"},
		{with("another"), ""},
		{status.Error(codes.Unavailable, "no connection"), ""},
		{io.EOF, ""},
		{nil, ""},
	} {
		if got := client.Reason(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestTraceID(t *testing.T) {
	t.Parallel()
	failed, err := status.New(codes.Internal, "boom").WithDetails(&errdetails.ErrorInfo{Domain: "lockstep"}, &errdetails.RequestInfo{RequestId: "4bf9"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("update: %w", failed.Err()), "4bf9"},
		{status.Error(codes.Unavailable, "no connection"), ""},
		{io.EOF, ""},
		{nil, ""},
	} {
		if got := client.TraceID(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestAForeignTokenIsNotKept(t *testing.T) {
	t.Parallel()
	c, err := client.New(client.Options{Video: "localhost:1", Catalog: "localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Keep("not a token"); err == nil || c.Token() != "" {
		t.Errorf("kept %q: %v", c.Token(), err)
	}
	written := consistency.Token{Positions: []consistency.Position{{AggregateType: "video", AggregateID: "v", Epoch: 1, Version: 1}}}.String()
	if err := c.Keep(written); err != nil || c.Token() != written {
		t.Errorf("kept %q: %v, want %q", c.Token(), err, written)
	}
	c.Forget()
	if c.Token() != "" {
		t.Errorf("after Forget: %q", c.Token())
	}
}
