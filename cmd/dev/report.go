package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/lockstep/internal/walk"
	"example.com/lockstep/migrations"
)

// report is the output of a run. The JSON form of a report is a contract.
type report struct {
	Postgres string      `json:"postgres"`
	PubSub   string      `json:"pubsub"`
	Steps    []walk.Step `json:"steps"`

	videoURL, catalogURL string
	issuerURL            string // empty: every caller may do everything
	// fork: leave out
	liveURL string
	// fork: go on
	operate string // an operator's first commands
}

// writeText prints a table of the steps. The other times of a step are relative to its commit.
func (r report) writeText(w io.Writer) error {
	fmt.Fprintf(w, "\nOne video, three writes, each read back from catalog with the token of the write.\nvideo %s\n\n", r.Steps[0].VideoID)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tversion\tcommitted\tpublished\tapplied\tread\tanswered by\tevent")
	for _, s := range r.Steps {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Version,
			s.CommittedAt.Local().Format("15:04:05.000"), after(s, s.PublishedAt), after(s, s.AppliedAt), after(s, s.ReadAt),
			answeredBy(s), s.EventID)
	}
	return table.Flush()
}

func after(s walk.Step, t time.Time) string {
	return fmt.Sprintf("+%.1f ms", float64(t.Sub(s.CommittedAt))/float64(time.Millisecond))
}

func answeredBy(s walk.Step) string {
	if s.ReadStatus == http.StatusOK {
		return s.Source
	}
	return fmt.Sprintf("%s (%d)", s.Source, s.ReadStatus)
}

// writeServing prints the addresses, and first commands to try.
func (r report) writeServing(w io.Writer) error {
	var addresses strings.Builder
	tab := tabwriter.NewWriter(&addresses, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "%s\t%s  (REST and gRPC; /openapi.json, /readyz, /metrics)\n", migrations.Video, r.videoURL)
	fmt.Fprintf(tab, "%s\t%s\n", migrations.Catalog, r.catalogURL)
	var sign, header string
	if r.issuerURL != "" {
		fmt.Fprintf(tab, "issuer\t%s  (of users' tokens, for this machine only)\n", r.issuerURL)
		sign = fmt.Sprintf("  AUTH=\"Authorization: Bearer $(make token USER=%s)\"\n", walk.User)
		header = ` -H "$AUTH"`
	}
	// fork: leave out
	fmt.Fprintf(tab, "live\t%s  (in a browser: the pair at work, and buttons that attack it)\n", r.liveURL)
	// fork: go on
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
%[4]s
%[5]s  curl -i %[1]s/v1/videos%[6]s -d '{"uploader_id":"%[7]s","title":"Mine"}' -H 'Content-Type: application/json'
  curl -i %[2]s/v1/videos/VIDEO_ID%[6]s -H 'Consistency-Token: TOKEN' -H 'Prefer: wait=2'
  curl %[2]s/v1/videos%[6]s
%[3]s
Serving until Ctrl-C.
`, r.videoURL, r.catalogURL, r.operate, &addresses, sign, header, walk.User)
	return err
}

// operating returns the first commands for an operator, to be typed in another terminal. If the
// user gave a database, operating returns no commands. The commands would show the URL of the
// database, and the URL may contain a password.
func operating(p pair, all *parts) string {
	if all.postgres == nil {
		return ""
	}
	return fmt.Sprintf(`
  DATABASE_URL='%s' go run ./services/video/cmd/video outbox status
  DATABASE_URL='%s' PUBSUB_EMULATOR_HOST=%s GOOGLE_CLOUD_PROJECT=%s VIDEO_SERVICE_ADDR=%s go run ./services/catalog/cmd/catalog dlq list
`, all.videoURL, all.catalogURL, all.broker.at, p.project, all.video.Addr())
}
