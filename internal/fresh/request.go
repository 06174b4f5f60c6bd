package fresh

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
)

// FromHTTP reads the headers Consistency-Token (or the query parameter
// consistency_token), Consistency and Prefer. It answers Prefer in w.
func FromHTTP(w http.ResponseWriter, r *http.Request, query url.Values) (Request, error) {
	wait, err := rest.PreferredWait(w, r, DefaultWait, MaxWait)
	if err != nil {
		return Request{}, err
	}
	token, field, err := rest.ConsistencyToken(r, query)
	if err != nil {
		return Request{}, err
	}
	q := Request{Token: token, TokenField: field, ModeField: "Consistency", Wait: wait}
	q.Mode, q.StaleIfError, err = parseMode(r.Header.Values("Consistency"))
	return q, err
}

// parseMode takes a mode with the parameter stale-if-error, which is named after
// the cache directive of RFC 5861, in the syntax of RFC 9651.
func parseMode(headers []string) (mode consistency.Mode, staleIfError bool, err error) {
	if len(headers) == 0 {
		return "", false, nil
	}
	name, parameter, staleIfError := strings.Cut(strings.Join(headers, ","), ";")
	mode = consistency.Mode(strings.TrimSpace(name))
	known := []consistency.Mode{consistency.MinimizeLatency, consistency.AtLeastAsFresh, consistency.FullyConsistent}
	if !slices.Contains(known, mode) || staleIfError && strings.TrimSpace(parameter) != "stale-if-error" {
		return "", false, problem.Invalid("Consistency",
			"must be minimize-latency, at-least-as-fresh or fully-consistent, which ;stale-if-error may follow")
	}
	return mode, staleIfError, nil
}

// FromGRPC takes the fields of a request message. It checks wait also if there is no
// token that it could be used for.
func FromGRPC(token string, wait *durationpb.Duration, mode consistency.Mode, staleIfError bool) (Request, error) {
	q := Request{Token: token, Mode: mode, StaleIfError: staleIfError, Wait: DefaultWait}
	q.TokenField, q.ModeField = "at_least_as_fresh", "consistency"
	if wait == nil {
		return q, nil
	}
	if q.Wait = wait.AsDuration(); wait.CheckValid() != nil || q.Wait < 0 {
		return Request{}, problem.Invalid("wait", "must be a valid duration, and not negative")
	}
	return q, nil
}
