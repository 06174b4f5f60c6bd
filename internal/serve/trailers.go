package serve

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pushback is the trailer by which a server tells gRPC's own policies of retries when to come again. They
// do not read RetryInfo.
const pushback = "Grpc-Retry-Pushback-Ms"

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// pushbackOf returns the value of pushback for a call. If the call's deadline comes first, a client would
// wait for it and report DEADLINE_EXCEEDED. With a negative value it reports the error at once.
func pushbackOf(ctx context.Context, pause time.Duration) string {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return "-1"
	}
	return milliseconds(pause)
}

// answer is the ResponseWriter of one unary call. grpc-go sends an answer without a message as headers,
// and then trailers. A client takes the headers for the begin of the answer, and from then on its policy
// of retries does not apply. So answer sends both in one frame, which the protocol calls Trailers-Only.
type answer struct {
	http.ResponseWriter

	begun bool // headers have been sent
}

// Write sends a part of the message.
func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// WriteHeader sends the headers. It is called for a request that is not well-formed gRPC.
func (a *answer) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher. If grpc-go calls it before anything was written, there will be no message,
// and grpc-go wants to send the headers before the trailers. Flush then sends nothing, unless a handler has
// set metadata. A client finds this metadata in headers only, so Flush sends the headers.
func (a *answer) Flush() {
	if !a.begun && !hasMetadata(a.Header()) {
		return
	}
	a.begun = true
	_ = http.NewResponseController(a.ResponseWriter).Flush() // a client that has hung up needs no answer
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// end sends the status of an answer that has no message and no headers yet.
func (a *answer) end() {
	h := a.Header()
	if a.begun || h.Get("Grpc-Status") == "" {
		return
	}
	h.Del("Trailer") // net/http would send the declared fields as trailers
	for name, values := range h {
		plain, ok := strings.CutPrefix(name, http.TrailerPrefix)
		if !ok {
			continue
		}
		delete(h, name)
		if plain = http.CanonicalHeaderKey(plain); !slices.Contains(framing, plain) {
			h[plain] = values
		}
	}
	a.WriteHeader(http.StatusOK)
}

// framing are the headers from which net/http takes how to send an answer. As trailers of a handler they
// mean nothing, for example if the handler passes on the trailers of another server.
var framing = []string{"Connection", "Content-Length", "Trailer", "Transfer-Encoding"}

// common are the headers that grpc-go and this package set in an answer.
var common = []string{"Connection", "Content-Type", "Date", "Grpc-Encoding", "Trailer"}

func hasMetadata(h http.Header) bool {
	for name := range h {
		if !slices.Contains(common, name) {
			return true
		}
	}
	return false
}
