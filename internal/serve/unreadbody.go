package serve

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// restTime bounds the arrival of the rest of a body over HTTP/1 after the handler has begun to answer without it, for example
// because the caller may not call. net/http reads that rest before it sends the answer, and so keeps the connection for the next
// request. The headers of the request stay in memory until then. A long answer keeps its place among those of strangers, too.
// After a short one, no limit of a user or of strangers counts the request any more.
const restTime = time.Second

// body notes that its end was read.
type body struct {
	io.ReadCloser
	ended bool
}

func (b *body) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// early is the answer to a request whose body may not have arrived. It bounds the rest of the body when it begins.
type early struct {
	http.ResponseWriter

	body  *body
	begun bool
}

// Unwrap is for [http.ResponseController].
func (e *early) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func (e *early) WriteHeader(status int) {
	if status >= http.StatusOK { // the final one, not such as 103
		e.begin()
	}
	e.ResponseWriter.WriteHeader(status)
}

func (e *early) Write(p []byte) (int, error) {
	e.begin()
	return e.ResponseWriter.Write(p)
}

func (e *early) begin() {
	if !e.begun && !e.body.ended {
		_ = http.NewResponseController(e.ResponseWriter).SetReadDeadline(time.Now().Add(restTime)) // as in boundAnswer
	}
	e.begun = true
}

// boundRest lets net/http send the answer and close the connection if the rest of the body does not arrive in restTime after
// next has begun to answer. Over HTTP/2 the answer resets its stream.
func boundRest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		b, with := &body{ReadCloser: r.Body}, r.WithContext(r.Context()) // net/http looks at the body of r itself
		with.Body = b
		answer := &early{ResponseWriter: w, body: b}
		defer answer.begin() // of a handler that has written nothing
		next.ServeHTTP(answer, with)
	})
}
