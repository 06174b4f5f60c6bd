package services_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// goodWhileUnread is good while strangers never let an answer's body out. Each of their connections sends
// 250 requests with 30 KB of headers, again and again.
func (f *flood) goodWhileUnread(connections int, lasts time.Duration) (times []time.Duration) {
	f.Helper()
	ctx, stop := context.WithCancel(f.Context())
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for ctx.Err() == nil {
				f.unreadRequests(ctx, 250)
			}
		})
	}
	eventually(f, "answers to strangers are given up", func() bool { return f.brokenOff.Load() >= 1000 })
	times = f.good(lasts)
	stop()
	all.Wait()
	return times
}

// unreadRequests sends requests over one connection, and returns when all have ended, or with ctx.
func (f *flood) unreadRequests(ctx context.Context, requests int) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	if framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) != nil {
		return
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for resets := 0; resets < requests; {
			frame, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if _, ok := frame.(*http2.RSTStreamFrame); ok {
				resets++
				f.brokenOff.Add(1)
			}
		}
	})
	for i := range requests {
		if sendBig(framer, uint32(2*i+1)) != nil {
			break
		}
	}
	ended.Wait()
}

func sendBig(framer *http2.Framer, stream uint32) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0)
	big := strings.Repeat("{~^|", 15_000/4) // Huffman's code makes it longer, so it is sent as it is
	for _, field := range [][2]string{
		{":method", "GET"}, {":path", "/v1/videos"}, {":scheme", "http"}, {":authority", "flood"}, {"x-a", big}, {"x-b", big},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return err
		}
	}
	const frame = 16_000
	first := true
	for rest := block.Bytes(); ; {
		part := rest[:min(frame, len(rest))]
		rest = rest[len(part):]
		var err error
		if first {
			err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndStream: true, EndHeaders: len(rest) == 0})
		} else {
			err = framer.WriteContinuation(stream, len(rest) == 0, part)
		}
		if err != nil || len(rest) == 0 {
			return err
		}
		first = false
	}
}
