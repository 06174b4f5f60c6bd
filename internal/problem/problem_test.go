package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/txn"
)

func TestCodesRenderTheSameOnBothTransports(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code   problem.Code
		http   int
		grpc   codes.Code
		reason string
	}{
		{problem.CodeInternal, 500, codes.Internal, "INTERNAL"},
		{problem.CodeInvalid, 400, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{problem.CodeNotFound, 404, codes.NotFound, "NOT_FOUND"},
		{problem.CodeGone, 410, codes.NotFound, "GONE"},
		{problem.CodeStale, 412, codes.Aborted, "VERSION_MISMATCH"},
		{problem.CodeAhead, 409, codes.FailedPrecondition, "TOKEN_AHEAD"},
		{problem.CodeKeyReused, 422, codes.InvalidArgument, "IDEMPOTENCY_KEY_REUSED"},
		{problem.CodeTooLarge, 413, codes.InvalidArgument, "TOO_LARGE"},
		{problem.CodeMediaType, 415, codes.InvalidArgument, "UNSUPPORTED_MEDIA_TYPE"},
		{problem.CodeMethodNotAllowed, 405, codes.Unimplemented, "METHOD_NOT_ALLOWED"},
		{problem.CodeTooMany, 429, codes.ResourceExhausted, "TOO_MANY_REQUESTS"},
		{problem.CodeUnavailable, 503, codes.Unavailable, "UNAVAILABLE"},
		{problem.CodeTimeout, 504, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
		{problem.CodeCanceled, 499, codes.Canceled, "CANCELED"},
	} {
		err := problem.New(tc.code, "", "Detail.")
		if got := write(t, err).Code; got != tc.http {
			t.Errorf("%s: HTTP status %d, want %d", tc.reason, got, tc.http)
		}
		if got := err.GRPCStatus().Code(); got != tc.grpc {
			t.Errorf("%s: gRPC code %s, want %s", tc.reason, got, tc.grpc)
		}
		if got := problem.ReasonOf(err.GRPCStatus().Err()); got != tc.reason {
			t.Errorf("reason of HTTP %d is %q, want %q", tc.http, got, tc.reason)
		}
	}
}

func TestFromClassifiesErrors(t *testing.T) {
	t.Parallel()
	_, unreachable := pgx.Connect(t.Context(), "postgres://u@127.0.0.1:1/db?connect_timeout=5")
	if _, ok := errors.AsType[*pgconn.ConnectError](unreachable); !ok {
		t.Fatalf("connecting to a closed port: %v, want a ConnectError", unreachable)
	}
	for name, tc := range map[string]struct {
		err  error
		want problem.Code
	}{
		"own error in a chain":     {fmt.Errorf("get video: %w", problem.New(problem.CodeGone, "", "")), problem.CodeGone},
		"own error around another": {&problem.Error{Code: problem.CodeTooMany, Cause: context.Canceled}, problem.CodeTooMany},
		"canceled":                 {fmt.Errorf("query: %w", context.Canceled), problem.CodeCanceled},
		"deadline":                 {fmt.Errorf("query: %w", context.DeadlineExceeded), problem.CodeTimeout},
		"deadline in a read":       {fmt.Errorf("query: %w", &net.OpError{Op: "read", Err: context.DeadlineExceeded}), problem.CodeTimeout},
		"no answer in time":        {fmt.Errorf("%w: %w", bounded.ErrLimit, context.DeadlineExceeded), problem.CodeUnavailable},
		"unreachable database":     {fmt.Errorf("acquire: %w", unreachable), problem.CodeUnavailable},
		"connection reset":         {fmt.Errorf("query: %w", &net.OpError{Op: "read", Err: io.EOF}), problem.CodeUnavailable},
		"connection closed":        {fmt.Errorf("query: %w", pgconn.ErrConnClosed), problem.CodeUnavailable},
		"answer cut short":         {fmt.Errorf("query: %w", io.ErrUnexpectedEOF), problem.CodeUnavailable},
		"connection exception":     {&pgconn.PgError{Code: "08006"}, problem.CodeUnavailable},
		"admin shutdown":           {&pgconn.PgError{Code: "57P01"}, problem.CodeUnavailable},
		"crash shutdown":           {&pgconn.PgError{Code: "57P02"}, problem.CodeUnavailable},
		"starting up":              {&pgconn.PgError{Code: "57P03"}, problem.CodeUnavailable},
		"too many connections":     {&pgconn.PgError{Code: "53300"}, problem.CodeUnavailable},
		"disk full":                {&pgconn.PgError{Code: "53100"}, problem.CodeUnavailable},
		"file cannot be read":      {&pgconn.PgError{Code: "58030"}, problem.CodeUnavailable},
		"broken page":              {&pgconn.PgError{Code: "XX001"}, problem.CodeUnavailable},
		"broken index":             {&pgconn.PgError{Code: "XX002"}, problem.CodeUnavailable},
		"no transaction ids":       {&pgconn.PgError{Code: "54000", Routine: "GetNewTransactionId"}, problem.CodeUnavailable},
		"no multixact ids":         {&pgconn.PgError{Code: "54000", Routine: "GetNewMultiXactId"}, problem.CodeUnavailable},
		"index entry too large":    {&pgconn.PgError{Code: "54000", Routine: "index_form_tuple_context"}, problem.CodeInternal},
		"ended idle session":       {&pgconn.PgError{Code: "57P05"}, problem.CodeUnavailable},
		"internal error":           {&pgconn.PgError{Code: "XX000"}, problem.CodeInternal},
		"former primary":           {&pgconn.PgError{Code: "25006"}, problem.CodeUnavailable},
		"before the migrations":    {&pgconn.PgError{Code: "42P01"}, problem.CodeUnavailable},
		"without the schema":       {&pgconn.PgError{Code: "3F000"}, problem.CodeUnavailable},
		"statement timeout":        {fmt.Errorf("list: %w", &pgconn.PgError{Code: "57014"}), problem.CodeTimeout},
		"lock timeout":             {&pgconn.PgError{Code: "55P03"}, problem.CodeUnavailable},
		"locked row":               {fmt.Errorf("write: %w: %w", txn.ErrLocked, &pgconn.PgError{Code: "55P03"}), problem.CodeUnavailable},
		"behind slow writes":       {fmt.Errorf("write: %w", txn.ErrBusy), problem.CodeUnavailable},
		"idle in transaction":      {&pgconn.PgError{Code: "25P03"}, problem.CodeTimeout},
		"transaction too long":     {&pgconn.PgError{Code: "25P04"}, problem.CodeTimeout},
		"constraint":               {&pgconn.PgError{Code: "23505"}, problem.CodeInternal},
		"status of another":        {status.Error(codes.NotFound, "no such shelf"), problem.CodeInternal},
		"anything else":            {errors.New("boom"), problem.CodeInternal},
	} {
		got := problem.From(tc.err)
		if got.Code != tc.want {
			t.Errorf("%s: code %d, want %d (%v)", name, got.Code, tc.want, got)
		}
		if wait := got.RetryAfter > 0; wait != (tc.want == problem.CodeUnavailable) {
			t.Errorf("%s: RetryAfter is %s", name, got.RetryAfter)
		}
	}
	for want, err := range map[string]error{"LOCKED": txn.ErrLocked, "BUSY": txn.ErrBusy} {
		if got := problem.From(fmt.Errorf("write: %w", err)); got.Reason != want {
			t.Errorf("reason %q of %v, want %s", got.Reason, err, want)
		}
	}
	if got := problem.From(nil); got != nil {
		t.Errorf("From(nil) = %v, want nil", got)
	}
}

func TestWriteRendersAProblemDocument(t *testing.T) {
	t.Parallel()
	extra := map[string]any{"version": 3, "status": "cannot replace a standard member"}
	res := write(t, fmt.Errorf("patch: %w", &problem.Error{
		Code: problem.CodeGone, Reason: "VIDEO_DELETED", Detail: "The video was deleted.",
		Fields:     []problem.Field{{Field: "video_id", Detail: "names a deleted video"}},
		RetryAfter: 1200 * time.Millisecond,
		Extra:      extra,
	}))
	if len(extra) != 2 {
		t.Errorf("the error's own members became %v: several answers may share them", extra)
	}
	want := map[string]any{
		"type": "/problems/video-deleted", "title": "Video deleted", "status": 410.0, "reason": "VIDEO_DELETED",
		"detail": "The video was deleted.", "instance": "/v1/videos/a%20b", "version": 3.0,
		"errors": []any{map[string]any{"field": "video_id", "detail": "names a deleted video"}},
	}
	if diff := cmp.Diff(want, document(t, res)); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	if got := res.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if got := res.Header().Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %q, want 2: rounded up", got)
	}
	plain := write(t, problem.New(problem.CodeNotFound, "", ""))
	if pause := plain.Header().Get("Retry-After"); pause != "" {
		t.Errorf("Retry-After %q of an error without a pause", pause)
	}
	bare := document(t, plain)
	if diff := cmp.Diff([]any{}, bare["errors"]); diff != "" {
		t.Errorf("errors of a problem that is of no field (-want +got):\n%s", diff)
	}
}

func TestInvalidFieldsNamesEachField(t *testing.T) {
	t.Parallel()
	err := problem.InvalidFields([]problem.Field{{Field: "title", Detail: "is empty"}, {Field: "items[1]", Detail: "is negative"}})
	want := []any{
		map[string]any{"field": "title", "detail": "is empty"},
		map[string]any{"field": "items[1]", "detail": "is negative"},
	}
	if diff := cmp.Diff(want, document(t, write(t, err))["errors"]); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestACauseIsLoggedAndNeverShown(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	log := slog.New(slog.NewJSONHandler(&lines, nil))
	res := httptest.NewRecorder()
	cause := errors.New("s3cret")
	problem.Write(res, httptest.NewRequest(http.MethodGet, "/", nil), log, cause)
	if strings.Contains(res.Body.String(), "s3cret") {
		t.Errorf("the document shows the cause: %s", res.Body)
	}
	if st := problem.From(cause).GRPCStatus(); strings.Contains(st.Proto().String(), "s3cret") {
		t.Errorf("the status shows the cause: %v", st)
	}
	if !strings.Contains(lines.String(), "s3cret") {
		t.Errorf("the log lacks the cause: %s", lines.String())
	}
}

func TestOnlyErrorsOfOursAreLogged(t *testing.T) {
	t.Parallel()
	for code, level := range map[problem.Code]string{
		problem.CodeInternal: "ERROR", problem.CodeUnavailable: "WARN", problem.CodeTimeout: "WARN", problem.CodeInvalid: "",
	} {
		var lines strings.Builder
		problem.New(code, "", "").Log(t.Context(), slog.New(slog.NewTextHandler(&lines, nil)))
		if logged := lines.String(); (level == "") != (logged == "") || !strings.Contains(logged, level) {
			t.Errorf("code %d logged %q, want level %q", code, logged, level)
		}
	}
}

func TestACauseWithALineMakesNoOther(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	e := problem.New(problem.CodeUnavailable, "", "")
	e.Logged = true
	e.Log(t.Context(), slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if !strings.Contains(lines.String(), "level=DEBUG") {
		t.Errorf("logged %q", lines.String())
	}
}

func write(t testing.TB, err error) *httptest.ResponseRecorder {
	t.Helper()
	res := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPatch, "/v1/videos/a%20b?page_size=1", nil)
	problem.Write(res, r, slog.New(slog.DiscardHandler), err)
	return res
}

func document(t testing.TB, res *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(res.Body.Bytes(), &doc); err != nil {
		t.Fatalf("decode document %q: %v", res.Body, err)
	}
	return doc
}

// Each further fault is compared with all faults before it.
func TestViolationsAreBounded(t *testing.T) {
	t.Parallel()
	var bad, more problem.Violations
	for i := range 1000 {
		bad.Require(false, fmt.Sprint("field", i), "is not known")
		more.Require(false, fmt.Sprint("other", i), "is not known")
	}
	bad.Merge(more)
	if len(bad) != 20 || len(more) != 20 || bad[19].Field != "field19" {
		t.Errorf("%d and %d faults, want the first 20", len(bad), len(more))
	}
	var long problem.Violations
	long.Require(false, "x"+strings.Repeat("é", 10_000), strings.Repeat("x", 10_000))
	if f := long[0]; f.Field != "x"+strings.Repeat("é", 99)+"…" || f.Detail != strings.Repeat("x", 200)+"…" {
		t.Errorf("a fault of %d and %d bytes, want 199 and 200, and an ellipsis", len(f.Field), len(f.Detail))
	}
}

func TestFaultsOfOtherPartsAreTaken(t *testing.T) {
	t.Parallel()
	var bad problem.Violations
	bad.Require(false, "a", "is wrong")
	if err := bad.Take(nil); err != nil || len(bad) != 1 {
		t.Errorf("nothing to take: %v, %v", err, bad)
	}
	if err := bad.Take(fmt.Errorf("read: %w", problem.Invalid("b", "is wrong, too"))); err != nil || len(bad) != 2 || bad[1].Field != "b" {
		t.Errorf("a fault: %v, %v", err, bad)
	}
	reused := problem.Invalid("Idempotency-Key", "came before")
	reused.Reason = "KEY"
	for _, other := range []error{
		errors.New("broken"), problem.New(problem.CodeInvalid, "", "of no field"), reused, problem.New(problem.CodeDenied, "", "denied"),
	} {
		if err := bad.Take(other); !errors.Is(err, other) || len(bad) != 2 {
			t.Errorf("%v: %v, %v", other, err, bad)
		}
	}
}

func TestLineRefusesInvisibleCharacters(t *testing.T) {
	t.Parallel()
	for line, ok := range map[string]bool{
		"Pompeii": true, "": false, "a\nb": false,
		"می\u200cخواهم": true, "👩\u200d🚀": true, "\u200eabc\u200f": true, "क\u094d\u200dष": true, "עברית and English": true,
		"a\u202eb": false, "\u202aa\u202c": false, "\u2066a\u2069": false, "\u2068a": false, "a\u200bb": false, "\ufeffa": false,
		"a\u2028b": false, "a\u2029b": false, "a\u2060b": false, "a\u206ab": false, "a\u180eb": false, "a\u00adb": false,
		"a\U000e0041b": false, "a\u115fb": false, "a\u3164b": false, "a\ufffab": false,
		"\u0663\u0600": true, "\u061ca": true, "\u2764\ufe0f": true, "葛\U000e0100": true, // a number sign, and variants of characters
		"\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f": true, // the flag of Scotland
		"\U0001f3f4\U000e0067\U000e007f":                                         false, "\U000e0067\U000e0062": false,
		" ": false, "\u00a0\u3000": false, "\u200d": false, " a ": true, "\ue000": true,
	} {
		var bad problem.Violations
		bad.Line("title", line, 1, 20)
		if (len(bad) == 0) != ok {
			t.Errorf("%+q: %v, want taken: %t", line, bad, ok)
		}
	}
	var bad problem.Violations
	bad.Text("description", "\u2067עברית\u2069", 0, 20, "\n")
	if len(bad) > 0 {
		t.Errorf("a longer text may hold isolates: %v", bad)
	}
	bad.Line("q", " ", 0, 20)
	if len(bad) > 0 {
		t.Errorf("a line that may be empty may be blank: %v", bad)
	}
}

func TestLongPathsAreCutInAnswers(t *testing.T) {
	t.Parallel()
	res := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/"+strings.Repeat("%22", 20_000), nil)
	problem.Write(res, r, slog.New(slog.DiscardHandler), problem.New(problem.CodeNotFound, "", "There is nothing at this path."))
	if instance, _ := document(t, res)["instance"].(string); res.Body.Len() > 1024 || !strings.HasPrefix(instance, "/%22%22") {
		t.Errorf("%d bytes, instance %q", res.Body.Len(), instance)
	}
}
