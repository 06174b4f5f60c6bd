package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

// ConsistencyRequest reads the headers Consistency-Token (or the query parameter
// consistency_token), Consistency and Prefer. It answers Prefer with the header
// Preference-Applied in w.
func ConsistencyRequest(w http.ResponseWriter, r *http.Request, query url.Values) (consistency.Request, error) {
	wait, err := preferredWait(w, r, consistency.DefaultWait, consistency.MaxWait)
	if err != nil {
		return consistency.Request{}, err
	}
	token, field, err := consistencyToken(r, query)
	if err != nil {
		return consistency.Request{}, err
	}
	q := consistency.Request{Token: token, TokenField: field, ModeField: "Consistency", Wait: wait}
	q.Mode, q.StaleIfError, err = parseMode(r.Header.Values("Consistency"))
	return q, err
}

// parseMode parses a mode in the syntax of RFC 9651. The parameter stale-if-error may follow the
// mode. The parameter is named after the cache directive of RFC 5861.
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

// preferredWait returns how long the client is willing to wait. It reads the first "wait" in the
// Prefer headers (RFC 7240), in whole seconds. It lowers a wait above ceiling to ceiling, and
// confirms the result in the answer's header Preference-Applied. If the client sent no wait,
// preferredWait returns fallback.
func preferredWait(w http.ResponseWriter, r *http.Request, fallback, ceiling time.Duration) (time.Duration, error) {
	for preference := range strings.SplitSeq(strings.Join(r.Header.Values("Prefer"), ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if value == "" || strings.Trim(value, "0123456789") != "" {
			return 0, problem.Invalid("Prefer", "wait must be a whole number of seconds, and not negative")
		}
		// Atoi of digits fails only if there are too many, and then the wait is above
		// the ceiling.
		seconds, err := strconv.Atoi(value)
		if most := int(ceiling.Seconds()); err != nil || seconds > most {
			seconds = most
		}
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(seconds))
		return time.Duration(seconds) * time.Second, nil
	}
	return fallback, nil
}

// consistencyToken returns the tokens in the Consistency-Token headers and in the query parameter
// consistency_token, separated by commas. A header may itself have several. A proxy may also join
// several headers into one (RFC 9110, 5.3). The result is empty if no token was sent. field names the
// header or the parameter, for errors.
func consistencyToken(r *http.Request, query url.Values) (token, field string, err error) {
	field, tokens := "Consistency-Token", slices.Clone(r.Header.Values("Consistency-Token"))
	if query.Has("consistency_token") {
		if len(tokens) == 0 {
			field = "consistency_token"
		}
		tokens = append(tokens, query.Get("consistency_token"))
	}
	if len(tokens) > 0 && slices.Contains(tokens, "") {
		return "", field, problem.Invalid(field, "must not be empty")
	}
	return strings.Join(slices.Compact(tokens), ","), field, nil
}
