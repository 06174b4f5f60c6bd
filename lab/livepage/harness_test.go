package livepage

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"example.com/lockstep/internal/local/variables"
)

const (
	// patience bounds each wait, far above the needs of a loaded machine.
	patience = 3 * time.Minute
	// endTime is for the drain of both services.
	endTime = 30 * time.Second
)

// serve starts the pair and returns the URL of its page. The pair ends with the test, and
// an exit code other than 0 is a failure.
func serve(t *testing.T) string {
	t.Helper()
	for _, port := range []string{"8080", "8081", "8082", "8083"} {
		lis, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Skipf("this machine uses a port of make run itself: %v", err)
		}
		lis.Close()
	}
	binary := filepath.Join(t.TempDir(), "dev")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/dev")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	cmd := exec.Command(binary, "--pubsub", "local")
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !variables.Forgets(name) {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		killer := time.AfterFunc(endTime, func() { _ = cmd.Process.Kill() })
		defer killer.Stop()
		for lines.Scan() { // until it has ended
		}
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("make run ended with %v; its log:\n%s", err, complaints.String())
		}
	})
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), "live "); found {
			return strings.Fields(rest)[0]
		}
	}
	t.Fatal("make run ended without the address of the page")
	return ""
}

// browser is a tab of Chromium that has loaded the page.
type browser struct {
	ctx context.Context //nolint:containedctx // chromedp's tab is its context

	mu     sync.Mutex
	faults []string
}

// open skips the test where there is no Chromium; CI must have one.
func open(t *testing.T, url string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience),
		chromedp.Env("TMPDIR=/tmp")) // its socket there has a path of less than 108 bytes
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return // the tab has ended
			}
			b.hear(m)
		}
	}()
	do(t, b, chromedp.EmulateViewport(1280, 900))
	do(t, b, chromedp.Navigate(url))
	b.await(t, `document.getElementById("link").dataset.state === "up" && document.querySelectorAll(".stage").length > 0`)
	return b
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	absent(t, "Chromium")
	return ""
}

// absent skips the test, except in CI, which must have everything.
func absent(t *testing.T, program string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed, and CI tests the page", program)
	}
	t.Skipf("%s is not installed: the page is not tested", program)
}

// hear keeps what a person would see in red or yellow on the console.
func (b *browser) hear(m chromedp.ConsoleMessage) {
	if m.Type != chromedp.ConsoleException && m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleWarning {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf("%s: %s (%s:%d)", m.Type, m.Text, m.URL, m.Line))
}

// do returns the result of an action.
func do[T any](t *testing.T, b *browser, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// ask returns the value of an expression in the page.
func ask[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	return do(t, b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// await waits until the condition is true in the page.
func (b *browser) await(t *testing.T, condition string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ask[bool](t, b, condition); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, condition)
		}
	}
}

// hide tells the page that its tab is hidden, or shown.
func (b *browser) hide(t *testing.T, hidden bool) {
	t.Helper()
	ask[bool](t, b, fmt.Sprintf(`{
		Object.defineProperty(document, "hidden", { value: %t, configurable: true });
		document.dispatchEvent(new Event("visibilitychange")) }`, hidden))
}

// scheme asks for the dark or the light colours.
func (b *browser) scheme(t *testing.T, name string) {
	t.Helper()
	do(t, b, func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return chromedp.Void{}, err
	})
}
