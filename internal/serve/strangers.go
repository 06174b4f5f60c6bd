package serve

import (
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxStrangers bounds the answers to strangers that are under way: refusals, and answers that need
	// no caller. An answer keeps the headers of its request, up to maxHeaderBytes, until the client has read
	// the answer. All answers together keep up to 16 MB, and the garbage collector needs memory, too. A
	// stranger may open connections with up to maxStreams requests each. Cloud Run sends an instance at
	// most twice as many requests as maxStrangers.
	maxStrangers = 500
	// maxProbes bounds the answers of health, readiness and metrics that are under way, apart from
	// maxStrangers. So strangers cannot keep a platform from its probes. It has no effect if the probes
	// have a port of their own.
	maxProbes = 50
	// strangerTime bounds the time of an answer to a stranger, which is short.
	strangerTime = 5 * time.Second
)

// strangers are the places for the answers to strangers.
type strangers struct {
	places chan struct{}
	// brokenOff bounds the lines about requests that are broken off.
	brokenOff *rate.Sometimes
}

func newStrangers(most int) *strangers {
	return &strangers{make(chan struct{}, most), &rate.Sometimes{First: 1, Interval: time.Minute}}
}

// answer serves r, whose answer keeps one of the places until the client has taken it. If there is no
// place, answer breaks off the request without an answer, because each answer would have to wait for its
// client, too. In metrics such a request has the status 429, because it is no fault of the service.
func (s *strangers) answer(log *slog.Logger, w http.ResponseWriter, r *http.Request, h http.Handler) {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		s.brokenOff.Do(func() {
			log.WarnContext(r.Context(), "requests are broken off, because clients do not read their answers", "answers", cap(s.places))
		})
		w.WriteHeader(http.StatusTooManyRequests) // it is not sent
		panic(http.ErrAbortHandler)               //nolint:forbidigo // the only way to break off a request
	}
	boundAnswer(w, strangerTime)
	h.ServeHTTP(w, r)
	if r.ProtoMajor == 2 { // else net/http would send the rest of the answer when no place is kept any more
		_ = http.NewResponseController(w).Flush()
	}
}
