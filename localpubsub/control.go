package localpubsub

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

// maxControl bounds the body of a control request.
const maxControl = 1 << 20

// control serves the HTTP endpoints with which another process controls the server:
//
//	PUT  /control/faults   {"seed": 7, "faults": [{"kind": "latency", "delay": "5ms"}]}
//	GET  /control/faults
//	POST /control/advance  {"by": "10m"}
//	GET  /control/backlog  answers {"projects/p/subscriptions/s": 3}, the messages without an acknowledgement
//	POST /reset            forgets everything, as in the official emulator
//
// The handler rest serves everything below /v1/.
func (s *Server) control(rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /control/faults", s.putFaults)
	mux.HandleFunc("GET /control/faults", s.getFaults)
	mux.HandleFunc("POST /control/advance", s.advance)
	mux.HandleFunc("GET /control/backlog", s.getBacklog)
	mux.HandleFunc("POST /reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Forget()
		_, _ = io.WriteString(w, "Forgot everything.\n")
	})
	mux.Handle("/v1/", rest)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "Ok\n") })
	return mux
}

// FaultPlan is the JSON form of the arguments of [Server.SetFaults].
type FaultPlan struct {
	Seed   uint64  `json:"seed"`
	Faults []Fault `json:"faults"`
}

func (s *Server) putFaults(w http.ResponseWriter, r *http.Request) {
	var wanted FaultPlan
	if !decodeControl(w, r, &wanted) {
		return
	}
	if err := s.SetFaults(wanted.Seed, wanted.Faults...); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.getFaults(w, r)
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) {
	p := s.faults.current.Load()
	writeControl(w, FaultPlan{Seed: p.seed, Faults: p.faults})
}

func (s *Server) getBacklog(w http.ResponseWriter, _ *http.Request) {
	backlog := map[string]int{}
	for _, sub := range s.subscriptions.all() {
		backlog[sub.name] = sub.unacked()
	}
	writeControl(w, backlog)
}

func writeControl(w http.ResponseWriter, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // fails when the client has hung up
}

func (s *Server) advance(w http.ResponseWriter, r *http.Request) {
	var wanted struct {
		By Duration `json:"by"`
	}
	if !decodeControl(w, r, &wanted) {
		return
	}
	if wanted.By <= 0 {
		http.Error(w, "by: it must be positive, as \"10s\" is", http.StatusBadRequest)
		return
	}
	s.clock.Advance(time.Duration(wanted.By))
	w.WriteHeader(http.StatusNoContent)
}

// decodeControl decodes the body of the request into the value into. If the body is invalid, it
// writes an error as the answer and returns false.
func decodeControl(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControl))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && decoder.More() {
		err = errors.New("more than one JSON value")
	}
	if err != nil {
		http.Error(w, "body: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}
