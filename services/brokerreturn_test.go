package services_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"example.com/lockstep/internal/local/broker"
)

// comeBack starts a stopped broker again, without its earlier data, behind its old
// address; it can be stopped again. It is provisioned before the address is open: a
// relay that found the topic before its subscription existed would publish messages
// that no subscription keeps.
func (b *testBroker) comeBack(t testing.TB, project string) {
	t.Helper()
	server, err := broker.Start(t.Context(), broker.Options{Kind: b.kind})
	if err != nil {
		t.Fatal(err)
	}
	closeServer := sync.OnceFunc(func() { b.end(t, server) })
	t.Cleanup(closeServer)
	if _, err := broker.Provision(t.Context(), server.Addr(), project); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	b.stop = sync.OnceFunc(func() {
		listener.Close()
		closeServer()
	})
	t.Cleanup(b.stop)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go join(client, server.Addr())
		}
	}()
}

// join connects a client with addr until either side closes the connection.
func join(client net.Conn, addr string) {
	defer client.Close()
	host, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer host.Close()
	hungUp := make(chan struct{}, 2)
	pipe := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // either end reports that the other has closed
		hungUp <- struct{}{}
	}
	go pipe(host, client)
	go pipe(client, host)
	<-hungUp
}
