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
// Preference-Applied in w. It reports the faults of all of them.
func ConsistencyRequest(w http.ResponseWriter, r *http.Request, query url.Values, violations *problem.Violations) consistency.Request {
	q := consistency.Request{ModeField: "Consistency"}
	q.Wait = preferredWait(w, r, violations)
	q.Mode, q.StaleIfError = parseMode(r.Header.Values("Consistency"), violations)
	q.Token, q.TokenField = consistencyToken(r, query, violations)
	return q
}

// parseMode parses a mode in the syntax of RFC 9651. The parameter stale-if-error may follow the
// mode. The parameter is named after the cache directive of RFC 5861.
func parseMode(headers []string, violations *problem.Violations) (mode consistency.Mode, staleIfError bool) {
	if len(headers) == 0 {
		return "", false
	}
	name, parameter, staleIfError := strings.Cut(strings.Join(headers, ","), ";")
	mode = consistency.Mode(strings.TrimSpace(name))
	violations.Require(mode.IsKnown() && (!staleIfError || strings.TrimSpace(parameter) == "stale-if-error"),
		"Consistency", "must be minimize-latency, at-least-as-fresh or fully-consistent, which ;stale-if-error may follow")
	if !mode.IsKnown() {
		mode = "" // so that the faults of the token are found, too
	}
	return mode, staleIfError
}

// preferredWait returns how long the client is willing to wait. It reads the first "wait" in the
// Prefer headers (RFC 7240), in whole seconds. It lowers a wait above consistency.MaxWait to that, and
// confirms the result in the answer's header Preference-Applied. If the client sent no wait,
// preferredWait returns consistency.DefaultWait.
func preferredWait(w http.ResponseWriter, r *http.Request, violations *problem.Violations) time.Duration {
	for preference := range strings.SplitSeq(strings.Join(r.Header.Values("Prefer"), ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if value == "" || strings.Trim(value, "0123456789") != "" {
			violations.Require(false, "Prefer", "wait must be a whole number of seconds, and not negative")
			break
		}
		// Atoi of digits fails only if there are too many, and then it returns the largest int.
		seconds, _ := strconv.Atoi(value)
		seconds = min(seconds, int(consistency.MaxWait.Seconds()))
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(seconds))
		return time.Duration(seconds) * time.Second
	}
	return consistency.DefaultWait
}

// consistencyToken returns the tokens in the Consistency-Token headers and in the query parameter
// consistency_token, separated by commas. A header may itself have several. A proxy may also join
// several headers into one (RFC 9110, 5.3). The result is empty if no token was sent. field names the
// header or the parameter, for errors.
func consistencyToken(r *http.Request, query url.Values, violations *problem.Violations) (token, field string) {
	field, tokens := "Consistency-Token", slices.Clone(r.Header.Values("Consistency-Token"))
	if query.Has("consistency_token") {
		if len(tokens) == 0 {
			field = "consistency_token"
		}
		tokens = append(tokens, query.Get("consistency_token"))
	}
	violations.Require(!slices.Contains(tokens, ""), field, "must not be empty")
	return strings.Join(slices.Compact(tokens), ","), field
}
