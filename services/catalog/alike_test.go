package catalog

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

// TestAnswersToEachKindOfToken is the table of docs/design.md: the kinds of token, and
// the answer of both protocols to a read of its video with it.
func TestAnswersToEachKindOfToken(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.peer.asked = nil
	conn := f.dial(t)
	addr, client := conn.Target(), catalogv1.NewCatalogServiceClient(conn)
	present, behind, gone, restored, unwritten, later := newVideoID(), newVideoID(), newVideoID(), newVideoID(), newVideoID(), newVideoID()
	f.must(t, inbox.Applied, createdEvent(present, 1, "a"), titled(present, 2, "b"), createdEvent(behind, 1, "a"),
		createdEvent(gone, 1, "a"), deletedEvent(gone, 2), createdEvent(restored, 1, "a"), createdEvent(later, 1, "a"))
	f.peer.has(ownersVideo(present, 2, "b"))
	f.peer.has(ownersVideo(behind, 2, "b"))
	f.peer.has(ownersTombstone(gone, 2))
	for _, id := range []uuid.UUID{restored, later} {
		again := ownersVideo(id, 1, "from the backup")
		again.Epoch = 2
		f.peer.has(again)
	}
	f.peer.epoch = 2
	theirs := ownersVideo(newVideoID(), 1, "of another tenant, from before the restore")
	theirs.TenantId = "another"
	f.peer.has(theirs)
	f.must(t, inbox.Applied, createdEvent(unwritten, 1, "a")) // the owner denies it
	nowhere, refused := newVideoID(), newVideoID()
	f.refuse(t)
	f.peer.has(ownersVideo(refused, 1, "refused"))
	tenants := consistency.Token{Tenant: "another", Positions: []consistency.Position{position(present, 1)}}.String()

	type answer struct {
		status  int
		code    codes.Code
		reason  string
		source  string
		version int64 // that the metadata says; 0: none
	}
	shown := func(source string, version int64) answer { return answer{200, codes.OK, "", source, version} }
	inEpoch := func(id uuid.UUID, epoch, version int64) string {
		return tokenOf(consistency.Position{AggregateType: "video", AggregateID: id.String(), Epoch: epoch, Version: version})
	}
	ahead, invalid := answer{409, codes.FailedPrecondition, "TOKEN_AHEAD", "", 0}, answer{400, codes.InvalidArgument, "INVALID_ARGUMENT", "", 0}
	tokens := documentedTokens(t)
	for name, tc := range map[string]struct {
		row   string // the begin of its row in docs/design.md; empty: it is no token
		id    uuid.UUID
		token string
		want  answer
	}{
		"reached":                    {"reached by the projection", present, token(present, 2), shown("projection", 2)},
		"overtaken":                  {"reached by the projection", present, token(present, 1), shown("projection", 2)},
		"of another video":           {"of another video", present, token(nowhere, 9), shown("projection", 2)},
		"on its way":                 {"on its way", behind, token(behind, 2), shown("authority", 2)},
		"that no row takes":          {"of a state that the read model", refused, inEpoch(refused, 1, 1), shown("authority", 1)},
		"of a deleted video":         {"of a video that was deleted since", gone, token(gone, 1), answer{410, codes.NotFound, "VIDEO_DELETED", "projection", 2}},
		"of the deletion":            {"of a video that was deleted since", gone, token(gone, 2), answer{410, codes.NotFound, "VIDEO_DELETED", "projection", 2}},
		"never written":              {"of a version that was never written", present, token(present, 1<<62), ahead},
		"of no video":                {"of a version that was never written", nowhere, inEpoch(nowhere, 2, 1), ahead},
		"the owner has lost it":      {"of a write that a failover", unwritten, inEpoch(unwritten, 2, 2), ahead},
		"from before a restore":      {"of an epoch before the owner's, which", restored, token(restored, 9), shown("authority", 1)},
		"of lost writes only":        {"of an epoch before the owner's, and only", nowhere, token(nowhere, 1), answer{404, codes.NotFound, "VIDEO_NOT_FOUND", "", 0}},
		"of another tenant's video":  {"of an epoch before the owner's, and only", uuid.MustParse(theirs.GetVideoId()), token(uuid.MustParse(theirs.GetVideoId()), 1), answer{404, codes.NotFound, "VIDEO_NOT_FOUND", "", 0}},
		"of a later epoch":           {"of an epoch after the projection's", later, inEpoch(later, 2, 1), shown("authority", 1)},
		"of another tenant":          {"of another tenant", present, tenants, invalid},
		"malformed":                  {"malformed", present, token(present, 2)[1:], invalid},
		"of a video without a UUID":  {"malformed", present, tokenOf(consistency.Position{AggregateType: "video", AggregateID: "42", Epoch: 1, Version: 1}), invalid},
		"none, and there is nothing": {"", nowhere, "", answer{404, codes.NotFound, "VIDEO_NOT_FOUND", "", 0}},
	} {
		if tc.row != "" {
			tokens.has(t, tc.row, tc.want.status, tc.want.code, tc.want.reason)
		}
		headers := []string{"Prefer: wait=0"}
		if tc.token != "" {
			headers = append(headers, "Consistency-Token: "+tc.token)
		}
		r := call(t, addr, "GET /v1/videos/"+tc.id.String(), headers...)
		var md metadata.MD
		_, err := client.GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: tc.id.String(), AtLeastAsFresh: tc.token, Wait: durationpb.New(0)}, grpc.Header(&md))
		reason, _ := r.body["reason"].(string)
		if r.status != tc.want.status || reason != tc.want.reason {
			t.Errorf("%s: REST answers %d %s, want %+v", name, r.status, reason, tc.want)
		}
		if status.Code(err) != tc.want.code || problem.ReasonOf(err) != tc.want.reason {
			t.Errorf("%s: gRPC answers %v, want %+v", name, err, tc.want)
		}
		version := ""
		if tc.want.version > 0 {
			version = fmt.Sprint(tc.want.version)
		}
		for header, want := range map[string]string{"Consistency-Source": tc.want.source, "Consistency-Version": version} {
			if got := first(md.Get(header)); got != want || r.header.Get(header) != want {
				t.Errorf("%s: %s is %q over gRPC and %q over REST, want %q", name, header, got, r.header.Get(header), want)
			}
		}
		if got := first(md.Get("Consistency-Token")); got != r.header.Get("Consistency-Token") || (got != "") != (tc.want.version > 0) {
			t.Errorf("%s: the token is %q over gRPC and %q over REST", name, got, r.header.Get("Consistency-Token"))
		}
	}
	for name, row := range map[string]string{"the owner is away": "any, the projection behind and the owner away", "no place to wait": "any, the projection behind and no place"} {
		tc := retried[name] // of TestBothProtocolsSayWhenToRetry
		tokens.has(t, row, tc.status, tc.code, tc.reason)
	}
	for text, row := range tokens {
		if !row.tested {
			t.Errorf("no case is for the row %q of docs/design.md", text)
		}
	}
}

// tokenRows is the table of tokens in docs/design.md: the answers by the kind of token.
type tokenRows map[string]*tokenRow

type tokenRow struct {
	rest, grpc string
	tested     bool
}

// has expects one row that begins with kind to have these answers.
func (rows tokenRows) has(t *testing.T, kind string, status int, code codes.Code, reason string) {
	t.Helper()
	for text, row := range rows {
		if !strings.HasPrefix(text, kind) {
			continue
		}
		if !strings.HasPrefix(row.rest, fmt.Sprint(status)) || status != http.StatusBadRequest && !strings.Contains(row.rest, reason) ||
			!strings.EqualFold(strings.ReplaceAll(row.grpc, "_", ""), code.String()) {
			t.Errorf("docs/design.md: %s is answered %q and %q, want %d %s and %s", text, row.rest, row.grpc, status, reason, code)
		}
		row.tested = true
		return
	}
	t.Errorf("docs/design.md has no row %q", kind)
}

func documentedTokens(t *testing.T) tokenRows {
	t.Helper()
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| token | answer | gRPC |\n| --- | --- | --- |\n")
	if !found {
		t.Fatal("docs/design.md has no table of tokens")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := tokenRows{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		rows[strings.TrimPrefix(cells[0], "| ")] = &tokenRow{rest: cells[1], grpc: strings.TrimRight(cells[2], " |\n")}
	}
	return rows
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// retried are failures that are not the reader's fault.
var retried = map[string]struct {
	places int
	wait   time.Duration
	status int
	code   codes.Code
	reason string
}{
	"the owner is away": {1, 0, http.StatusServiceUnavailable, codes.Unavailable, "NOT_FRESH_ENOUGH"},
	"no place to wait":  {0, time.Second, http.StatusTooManyRequests, codes.ResourceExhausted, "TOO_MANY_WAITERS"},
}

// A failure that is not the reader's fault has a time to retry on both protocols.
func TestBothProtocolsSayWhenToRetry(t *testing.T) {
	t.Parallel()
	for name, tc := range retried {
		f, id := setUpWith(t, tc.places), newVideoID()
		f.peer.fails(status.Error(codes.Unavailable, "away"))
		conn := f.dial(t)
		client := catalogv1.NewCatalogServiceClient(conn)
		for _, path := range []string{"/v1/videos/" + id.String(), "/v1/videos"} {
			r := call(t, conn.Target(), "GET "+path, "Consistency-Token: "+token(id, 1), fmt.Sprintf("Prefer: wait=%.0f", tc.wait.Seconds()))
			after, err := strconv.Atoi(r.header.Get("Retry-After"))
			if r.status != tc.status || r.body["reason"] != tc.reason || err != nil || after < 1 {
				t.Errorf("%s: GET %s is answered %d %v, Retry-After %q", name, path, r.status, r.body["reason"], r.header.Get("Retry-After"))
			}
			if r.body["type"] != "/problems/"+strings.ReplaceAll(strings.ToLower(tc.reason), "_", "-") {
				t.Errorf("%s: the problem's type is %v", name, r.body["type"])
			}
			if path == "/v1/videos" {
				_, err = client.ListVideos(t.Context(), &catalogv1.ListVideosRequest{AtLeastAsFresh: token(id, 1), Wait: durationpb.New(tc.wait)})
			} else {
				_, err = client.GetVideo(t.Context(), &catalogv1.GetVideoRequest{VideoId: id.String(), AtLeastAsFresh: token(id, 1), Wait: durationpb.New(tc.wait)})
			}
			if status.Code(err) != tc.code || problem.ReasonOf(err) != tc.reason || retryDelay(err) != time.Duration(after)*time.Second {
				t.Errorf("%s: %s over gRPC: %v, again after %s", name, path, err, retryDelay(err))
			}
		}
	}
}

func retryDelay(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
