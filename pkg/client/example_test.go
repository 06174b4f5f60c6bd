package client_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"

	"example.com/lockstep/pkg/client"
	"example.com/lockstep/pkg/eventing/consistency"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// A user writes, and reads it back from the read model. The servers of this example answer
// with a fixed token, and show the one that they receive; TestGoClient makes such calls to the pair.
func Example() {
	addr, stop := serve()
	defer stop()
	c, err := client.New(client.Options{
		Video: addr, Catalog: addr,
		Token: func(context.Context) (string, error) { return "from the issuer", nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	ctx := context.Background()
	created, err := c.Videos.CreateVideo(ctx, &videov1.CreateVideoRequest{Title: "Lockstep in one minute", DurationSeconds: 60})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The client has kept the token of the write: this read is at least as fresh.
	_, err = c.Catalog.GetVideo(ctx, &catalogv1.GetVideoRequest{VideoId: created.GetVideo().GetVideoId()})
	fmt.Println(err)
	// Output:
	// GetVideo at least as fresh as [{video v 1 1}]
	// <nil>
}

type videos struct {
	videov1.UnimplementedVideoServiceServer
}

func (videos) CreateVideo(context.Context, *videov1.CreateVideoRequest) (*videov1.CreateVideoResponse, error) {
	written := consistency.Token{Positions: []consistency.Position{{AggregateType: "video", AggregateID: "v", Epoch: 1, Version: 1}}}
	return &videov1.CreateVideoResponse{Video: &videov1.Video{VideoId: "v"}, ConsistencyToken: written.String()}, nil
}

type catalog struct {
	catalogv1.UnimplementedCatalogServiceServer
}

func (catalog) GetVideo(_ context.Context, r *catalogv1.GetVideoRequest) (*catalogv1.GetVideoResponse, error) {
	demanded, err := consistency.Parse(r.GetAtLeastAsFresh())
	fmt.Println("GetVideo at least as fresh as", demanded.Positions)
	return &catalogv1.GetVideoResponse{}, err
}

func serve() (addr string, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	videov1.RegisterVideoServiceServer(server, videos{})
	catalogv1.RegisterCatalogServiceServer(server, catalog{})
	go func() { _ = server.Serve(listener) }() // ends with an error when it is stopped
	return listener.Addr().String(), server.Stop
}
