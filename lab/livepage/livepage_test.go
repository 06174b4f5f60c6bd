package livepage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	// maxWeight is that of the page with all that it loads, in bytes.
	maxWeight = 100 << 10
	// maxGap is the longest time between two frames of the browser under load, in
	// milliseconds.
	maxGap = 200
	// axe is the checker of accessibility, fetched by npm.
	axe = "axe-core@4.14.1"
)

// inShort are the buttons of the quick form: one of each kind. All take two minutes.
var inShort = []string{"write", "burst", "pause", "kill-catalog", "duplicates", "broker-outage", "postgres-outage"}

// heavy are the buttons with thousands of events. On two quiet cores those that wait for a stopped
// video pass at 2,000 a second.
var heavy = []string{"burst", "pause", "stop-video"}

func TestLivePage(t *testing.T) {
	checker := fetchAxe(t)
	url := serve(t)
	b := open(t, url)
	t.Run("weight", func(t *testing.T) { isLight(t, url) })
	t.Run("keyboard", func(t *testing.T) { worksByKeyboard(t, b) })
	buttons := ask[[]string](t, b, `[...document.querySelectorAll("[data-press]:enabled")].map((b) => b.dataset.press)`)
	if len(buttons) < 15 {
		t.Errorf("%d buttons are possible: %v", len(buttons), buttons)
	}
	for _, name := range buttons {
		if !testing.Short() || slices.Contains(inShort, name) {
			t.Run(name, func(t *testing.T) { holds(t, b, name) })
		}
	}
	t.Run("too many viewers", func(t *testing.T) { comesBack(t, url) })
	t.Run("promises", func(t *testing.T) { areMarked(t, b) })
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			t.Run(fmt.Sprintf("%s, %d wide", scheme, width), func(t *testing.T) {
				b.scheme(t, scheme)
				do(t, b, chromedp.EmulateViewport(width, 900))
				isAccessible(t, b, checker)
				keepPicture(t, b, fmt.Sprintf("live-%s-%d.png", scheme, width))
			})
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		t.Errorf("errors on the console:\n%s", strings.Join(b.faults, "\n"))
	}
}

// A page that stays open shows nothing of a run that has ended, when the next run has begun.
func TestLivePageOfANewRun(t *testing.T) {
	const results = `document.querySelectorAll("[data-result='held'], [data-seen='true']").length`
	var b *browser
	t.Run("the first run", func(first *testing.T) {
		b = open(t, serve(first))
		ask[bool](first, b, `document.querySelector('[data-press="write"]').click(), true`)
		b.await(first, results+` > 1`)
	})
	if b == nil {
		t.Skip("the first run was skipped")
	}
	b.await(t, `document.getElementById("link").dataset.state === "away"`)
	t.Run("the next run", func(next *testing.T) {
		serve(next)
		b.await(next, `document.getElementById("link").dataset.state === "up"`)
		b.await(next, `document.getElementById("count").textContent.includes(" 0 of ")`)
		if n := ask[int](next, b, results); n != 0 {
			next.Errorf("the page shows %d results and promises of the first run", n)
		}
	})
}

// isLight adds up what a browser loads.
func isLight(t *testing.T, url string) {
	total := 0
	for _, path := range []string{"/", "/style.css", "/script.js", "/icon.svg"} {
		response, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, response.Status, err)
		}
		if strings.Contains(string(body), "https://") {
			t.Errorf("%s names another server", path)
		}
		total += len(body)
	}
	if total > maxWeight {
		t.Errorf("%d bytes, at most %d", total, maxWeight)
	}
	t.Logf("%d bytes", total)
}

// worksByKeyboard goes past the numbers by the first link, and presses the first button.
func worksByKeyboard(t *testing.T, b *browser) {
	for _, key := range []string{kb.Tab, kb.Enter, kb.Tab} {
		do(t, b, chromedp.KeyEvent(key))
	}
	if got := ask[string](t, b, `document.activeElement.dataset.press || document.activeElement.outerHTML`); got != "write" {
		t.Fatalf("the focus is on %s", got)
	}
	do(t, b, chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.getElementById("action-write").dataset.result === "held"`)
	if got := ask[string](t, b, `document.activeElement.dataset.press`); got != "write" {
		t.Errorf("the press moved the focus to %q", got)
	}
}

// comesBack fills the page with viewers while a tab is hidden. A hidden tab takes no place: its stream would keep one of
// the six connections that a browser opens to a server. A tab that finds no place shows so, and tries again.
func comesBack(t *testing.T, url string) {
	const most = 16
	b := open(t, url)
	b.hide(t, true)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	viewers := -1
	for status := http.StatusOK; status == http.StatusOK; viewers++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/frames", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		status = response.StatusCode
	}
	if others := 1; viewers != most-others { // the tab of the test's other parts is not hidden
		t.Errorf("%d viewers besides the hidden tab and %d other, at most %d", viewers, others, most)
	}
	b.hide(t, false)
	b.await(t, `document.getElementById("link").dataset.state === "away"`)
	leave()
	b.await(t, `document.getElementById("link").dataset.state === "up"`)
}

// holds presses a button and waits for its result. Then every part is up again, and no
// event waits.
func holds(t *testing.T, b *browser, name string) {
	b.await(t, `![...document.querySelectorAll("[data-press]")].some((b) => b.getAttribute("aria-disabled") === "true")`)
	ask[bool](t, b, `{
		document.querySelector("#action-`+name+` .outcome").textContent = "";
		document.getElementById("action-`+name+`").dataset.result = "";
		window.gap = window.fastest = 0;
		const shown = document.querySelector('[data-stage="Projection"] .rate');
		let last = performance.now(), on = true;
		const look = (now) => {
			window.gap = Math.max(window.gap, now - last);
			window.fastest = Math.max(window.fastest, parseFloat(shown.textContent.replaceAll(",", "")));
			last = now;
			if (on) requestAnimationFrame(look);
		};
		requestAnimationFrame(look);
		window.endOfLook = () => { on = false; };
		document.querySelector('[data-press="`+name+`"]').click();
		true }`)
	b.await(t, `["held", "broken"].includes(document.getElementById("action-`+name+`").dataset.result)`)
	said := ask[string](t, b, `document.querySelector("#action-`+name+` .outcome").textContent`)
	if result := ask[string](t, b, `document.getElementById("action-`+name+`").dataset.result`); result != "held" || said == "" {
		t.Errorf("%s: %s", result, said)
	}
	gap := ask[float64](t, b, `window.endOfLook(), window.gap`)
	t.Logf("%s (longest frame %.0f ms, up to %.0f events/s shown)", said, gap, ask[float64](t, b, `window.fastest`))
	if slices.Contains(heavy, name) && gap > maxGap {
		t.Errorf("a frame took %.0f ms, at most %d", gap, maxGap)
	}
	b.await(t, `[...document.querySelectorAll("#parts li")].every((p) => p.dataset.state === "up")`)
	b.await(t, `document.querySelector('[data-stage="Outbox"] [data-note="waiting"]').lastChild.textContent === "0"`)
	b.await(t, `document.querySelectorAll("#list li").length > 0`)
}

// areMarked requires every promise in the full form, each with its evidence.
func areMarked(t *testing.T, b *browser) {
	type promise struct {
		ID, Evidence string
		Seen         bool
	}
	seen := 0
	for _, p := range ask[[]promise](t, b, `[...document.querySelectorAll("#promises li")].map((p) =>
		({ID: p.id, Evidence: p.querySelector(".evidence").textContent, Seen: p.dataset.seen === "true"}))`) {
		if p.Seen != (p.Evidence != "") || !p.Seen && !testing.Short() {
			t.Errorf("%s: seen is %t, evidence %q", p.ID, p.Seen, p.Evidence)
		}
		if p.Seen {
			seen++
		}
	}
	if seen < 5 {
		t.Errorf("%d promises are marked", seen)
	}
}

// isAccessible requires that the checker has no serious finding, and that nothing is wider
// than the window.
func isAccessible(t *testing.T, b *browser, checker string) {
	type finding struct{ ID, Impact, Help, Where string }
	do(t, b, chromedp.Evaluate[chromedp.Void](checker))
	findings := ask[[]finding](t, b, `axe.run().then((r) => r.violations.map((v) =>
		({ID: v.id, Impact: v.impact, Help: v.help, Where: v.nodes.map((n) => n.target.join(" ")).join(", ")})))`)
	for _, f := range findings {
		if f.Impact == "serious" || f.Impact == "critical" {
			t.Errorf("%+v", f)
		} else {
			t.Logf("%+v", f)
		}
	}
	if ask[bool](t, b, `document.documentElement.scrollWidth > innerWidth`) {
		t.Error("the page is wider than the window")
	}
}

// fetchAxe returns the checker's script.
func fetchAxe(t *testing.T) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		absent(t, "npm")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), npm, "install", "--silent", "--no-save", "--ignore-scripts", "--prefix", dir, axe)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm install %s: %v: %s", axe, err, out)
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// keepPicture writes a picture of the page into the folder of LOCKSTEP_PICTURES, for the
// documents.
func keepPicture(t *testing.T, b *browser, name string) {
	t.Helper()
	dir := os.Getenv("LOCKSTEP_PICTURES")
	if dir == "" {
		return
	}
	picture := do(t, b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(dir, name), picture, 0o600); err != nil {
		t.Fatal(err)
	}
}
