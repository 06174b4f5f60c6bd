package serve

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// restTime bounds the arrival of the rest of a body over HTTP/1 after the handler has answered without it, for example because
// the caller may not call. net/http reads that rest before it sends the answer, and so keeps the connection for the next
// request. No limit of a user or of strangers counts the request any more, but its headers stay in memory.
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

// boundRest lets net/http send the answer and close the connection if the rest of the body does not arrive in restTime after
// next has returned. Over HTTP/2 the answer resets its stream.
func boundRest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		b, with := &body{ReadCloser: r.Body}, r.WithContext(r.Context()) // net/http looks at the body of r itself
		with.Body = b
		defer func() {
			if !b.ended {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime)) // as in boundAnswer
			}
		}()
		next.ServeHTTP(w, with)
	})
}
