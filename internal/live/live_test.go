package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/internal/live"
)

// patience ends a test that would otherwise hang.
const patience = time.Minute

var options = live.Options{
	Title: "A <page>",
	Buttons: []live.Button{
		{Name: "write", Group: "Traffic", Label: "Write", Expect: "It is written."},
		{Name: "crash", Group: "Outages", Label: "Crash", Expect: "It comes back.", Without: "Not here."},
	},
	Promises: []live.Promise{{ID: "P1", Name: "atomic", Text: "Together or not at all."}},
}

func serve(t *testing.T, o live.Options) (*live.Page, string) {
	t.Helper()
	page, err := live.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	t.Cleanup(page.Close) // first: a stream has no other end
	return page, server.URL
}

func get(t *testing.T, url string) (status int, header http.Header, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

func TestPage(t *testing.T) {
	t.Parallel()
	_, url := serve(t, options)
	status, header, body := get(t, url)
	if status != http.StatusOK || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d, %v", status, header)
	}
	for _, want := range []string{"A &lt;page&gt;", `data-press="write"`, "It is written.", `data-press="crash" aria-describedby="expect-crash" disabled`,
		"Not here.", `id="promise-P1"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
	for path, kind := range map[string]string{"/style.css": "text/css", "/script.js": "text/javascript", "/icon.svg": "image/svg+xml"} {
		if status, header, _ := get(t, url+path); status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), kind) {
			t.Errorf("%s: %d %s", path, status, header.Get("Content-Type"))
		}
	}
	if status, _, _ := get(t, url+"/index.html"); status != http.StatusNotFound {
		t.Errorf("the page's template is served: %d", status)
	}
}

func TestAPageWithoutButtonsOnlyShows(t *testing.T) {
	t.Parallel()
	_, url := serve(t, live.Options{Title: "catalog"})
	_, _, body := get(t, url)
	if strings.Contains(body, "<button") || strings.Contains(body, "Promises") {
		t.Errorf("the page:\n%s", body)
	}
	if status := press(t, url, "write", "1", ""); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		t.Errorf("a press is answered %d", status)
	}
}

func press(t *testing.T, url, name, header, host string) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/press/"+name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		r.Header.Set("Lockstep-Press", header)
	}
	r.Host = host
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// TestPresses: a press without the header could be another page's form, and one under
// another name another page's script.
func TestPresses(t *testing.T) {
	t.Parallel()
	page, url := serve(t, options)
	for name, c := range map[string]struct {
		button, header, host string
		want                 int
	}{
		"another page's form":   {"write", "", "", http.StatusForbidden},
		"another page's script": {"write", "1", "evil.example:80", http.StatusForbidden},
		"no such button":        {"other", "1", "", http.StatusNotFound},
		"not possible here":     {"crash", "1", "", http.StatusNotFound},
		"while another runs":    {"write", "1", "", http.StatusConflict},
	} {
		if got := press(t, url, c.button, c.header, c.host); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	taken := make(chan string, 1)
	go func() { taken <- <-page.Presses() }()
	// The receiver may not wait yet.
	for press(t, url, "write", "1", "") != http.StatusNoContent && t.Context().Err() == nil {
		<-time.After(time.Millisecond)
	}
	if got := <-taken; got != "write" {
		t.Errorf("pressed %q", got)
	}
}

// TestAForeignNameShowsNothing: under a name of its own that leads to this machine, another
// site's page could read what is shown. A page without buttons shows no more than metrics do.
func TestAForeignNameShowsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options live.Options
		want    int
	}{{options, http.StatusForbidden}, {live.Options{Title: "catalog"}, http.StatusOK}} {
		_, url := serve(t, c.options)
		for _, path := range []string{"/", "/script.js", "/frames"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "evil.example:8083"
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != c.want {
				t.Errorf("%s with %d buttons: %d, want %d", path, len(c.options.Buttons), response.StatusCode, c.want)
			}
		}
	}
}

// stream reads frames of a page.
type stream struct {
	lines *bufio.Scanner
	end   func()
}

func follow(t *testing.T, url string) stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/frames", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %s", response.Status, response.Header.Get("Content-Type"))
	}
	return stream{bufio.NewScanner(response.Body), cancel}
}

func (s stream) next(t *testing.T) (f live.Frame) {
	t.Helper()
	for s.lines.Scan() {
		if text, found := strings.CutPrefix(s.lines.Text(), "data: "); found {
			if err := json.Unmarshal([]byte(text), &f); err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatal("the stream has ended")
	return f
}

func show(t *testing.T, page *live.Page, running string) {
	t.Helper()
	if err := page.Show(live.Frame{Running: running}); err != nil {
		t.Fatal(err)
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	page, url := serve(t, options)
	first := follow(t, url)
	show(t, page, "a") // the viewer may come before it or after it
	if got := first.next(t).Running; got != "a" {
		t.Errorf("frame %q", got)
	}
	if got := follow(t, url).next(t).Running; got != "a" {
		t.Errorf("a second viewer begins with %q, want the last frame", got)
	}
	if n := page.Viewers(); n != 2 {
		t.Errorf("%d viewers", n)
	}
	page.Close()
	for first.lines.Scan() { // the rest of the last frame
	}
	if err := first.lines.Err(); err != nil {
		t.Error(err)
	}
}

// TestASlowViewerMissesFrames: Show never waits, and the newest frame arrives.
func TestASlowViewerMissesFrames(t *testing.T) {
	t.Parallel()
	page, url := serve(t, options)
	viewer := follow(t, url)
	large := strings.Repeat("x", 64<<10)
	for range 1000 { // 64 MB, far above the buffers of a connection
		show(t, page, large)
	}
	show(t, page, "last")
	viewer.lines.Buffer(nil, 1<<20)
	n := 0
	for viewer.next(t).Running != "last" {
		n++
	}
	if n >= 1000 {
		t.Errorf("%d frames were kept for a viewer that did not read", n)
	}
}

func TestViewersAreBounded(t *testing.T) {
	t.Parallel()
	page, url := serve(t, options)
	response, err := http.Head(url + "/frames") // is answered at once, and holds no view
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if n := page.Viewers(); n != 0 || response.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %d, %d viewers", response.StatusCode, n)
	}
	var last stream
	for range 16 {
		last = follow(t, url)
	}
	if status, _, _ := get(t, url+"/frames"); status != http.StatusServiceUnavailable {
		t.Errorf("one viewer too many: %d", status)
	}
	last.end()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for page.Viewers() == 16 && ctx.Err() == nil {
		runtime.Gosched()
	}
	follow(t, url) // in the place of the one that has gone
}

// TestFramesAreMadeWhileABrowserLooks: without a viewer there is no frame.
func TestFramesAreMadeWhileABrowserLooks(t *testing.T) {
	t.Parallel()
	page, url := serve(t, options)
	ctx, stop := context.WithCancel(t.Context())
	ended, asked := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		ended <- page.Run(ctx, func() live.Frame {
			if page.Viewers() == 0 {
				t.Error("a frame without a viewer")
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			return live.Frame{Running: "made"}
		})
	}()
	select {
	case <-asked:
		t.Error("a frame before the first viewer")
	default:
	}
	viewer := follow(t, url)
	for range 3 {
		if got := viewer.next(t).Running; got != "made" {
			t.Errorf("frame %q", got)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
