package peer

import (
	"context"
	"sync"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
)

// maxRequest is the real service's limit for one publish request, plus room for the frame. The
// server that pstest starts itself would refuse more than 4 MiB.
const maxRequest = 11 << 20

// StartPstest serves pstest in this process on addr. addr is a host:port, whose port may be 0. If
// the port is taken, the error names the port. The caller must close the server.
func StartPstest(ctx context.Context, addr string) (*Server, error) {
	l, err := listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	fake := pstest.NewServer() // also listens on a port of its own, which is not used
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))
	pubsubpb.RegisterPublisherServer(server, &fake.GServer)
	pubsubpb.RegisterSubscriberServer(server, &fake.GServer)
	pubsubpb.RegisterSchemaServiceServer(server, &fake.GServer)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Stop, or with the listener
	}()
	stop := sync.OnceValue(func() error { // a second Close of the fake panics
		server.Stop()
		<-done
		return fake.Close()
	})
	return &Server{addr: l.Addr().String(), description: "pstest, the Go client's in-memory fake", done: done, stop: stop}, nil
}
