package lockstep_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// end is the longest time that a process may take to end, if everything hangs. Cloud Run kills it after 10 s. The rest is for the work
// between the parts.
const end = 9800 * time.Millisecond

// The limits of all parts of a process's end together are below the time that Cloud Run gives, and the doc of package serve has them.
func TestTheLimitsOfAProcessesEnd(t *testing.T) {
	t.Parallel()
	outbox, inbox := "pkg/eventing/outbox/relay.go", "pkg/eventing/inbox/consumer.go"
	linger, requests := limit(t, "internal/serve/serve.go", "defaultLinger"), limit(t, "internal/serve/serve.go", "shutdownTimeout")
	relay := limit(t, outbox, "drainTime") + limit(t, outbox, "settleTime")
	consumer := limit(t, inbox, "leaveTime") + limit(t, inbox, "hookTime")
	closing, flush := limit(t, "internal/connect/pools.go", "closePools"), limit(t, "internal/command/serve.go", "flushTimeout")
	loops := linger + requests + max(relay, consumer)
	whole := loops + closing + flush
	if whole > end {
		t.Errorf("a process may take %s, want %s at most", whole, end)
	}
	doc := readFile(t, "internal/serve/serve.go")
	for part, until := range map[string]time.Duration{
		"(Server.Linger)": linger, "(shutdownTimeout)": linger + requests, "(drainTime, settleTime of outbox),": linger + requests + relay,
		"(leaveTime, hookTime of inbox)": linger + requests + consumer, "(closePools of connect)": loops + closing, "(flushTimeout of command)": whole,
	} {
		row := regexp.MustCompile(`(?m)^//.*` + regexp.QuoteMeta(part) + `.*$`).FindString(doc)
		if want := fmt.Sprintf(" %v s", until.Seconds()); !strings.HasSuffix(row, want) {
			t.Errorf("package serve says %q, want%s at its end", row, want)
		}
	}
	for _, other := range []struct {
		file, says string
		limit      time.Duration
	}{
		{"pkg/eventing/outbox/options.go", "are made until %v s after the end", relay},
		{"pkg/eventing/outbox/relay.go", "After that Run has up to %v seconds to write", limit(t, outbox, "settleTime")},
		{"pkg/eventing/outbox/doc.go", "Writing their results may take %v s more", limit(t, outbox, "settleTime")},
		{"pkg/eventing/inbox/doc.go", "The running transaction gets %v seconds", limit(t, inbox, "drainTime")},
		{"README.md", "get %v more seconds", requests},
		{"pkg/eventing/consistency/reader.go", "a draining server gives a reader %v s", requests},
	} {
		if want := fmt.Sprintf(other.says, other.limit.Seconds()); !strings.Contains(readFile(t, other.file), want) {
			t.Errorf("%s does not say %q", other.file, want)
		}
	}
}

// limit returns the duration of a constant.
func limit(t *testing.T, file, name string) time.Duration {
	t.Helper()
	found := regexp.MustCompile(`(?m)^(?:\s|const )` + name + `\s+= (?:(\d+) \* )?time\.(Second|Millisecond)$`).FindStringSubmatch(readFile(t, file))
	if found == nil {
		t.Fatalf("%s has no constant %s", file, name)
	}
	n := 1
	if found[1] != "" {
		n, _ = strconv.Atoi(found[1])
	}
	return time.Duration(n) * map[string]time.Duration{"Second": time.Second, "Millisecond": time.Millisecond}[found[2]]
}
