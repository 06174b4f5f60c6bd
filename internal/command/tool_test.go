package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestToolsTakeTheRestOfTheCommandLine(t *testing.T) {
	t.Parallel()
	s := Service{Name: "video", Tools: []Tool{{Name: "paint", About: "paint the bicycle shed", Run: func(_ context.Context, c Call) error {
		fmt.Fprint(c.Out, strings.Join(c.Args, "|"), c.Getenv("COLOR"))
		switch c.Args[0] {
		case "green":
			return fmt.Errorf("colors: %w", Usagef("no %s", c.Args[0]))
		case "red":
			return errors.New("no paint")
		}
		return nil
	}}}}
	for _, test := range []struct {
		args   string
		code   int
		stdout string
		stderr string // a part of it
	}{
		{"paint blue --coats 2", 0, "blue|--coats|2 please", ""},
		{"paint red", 1, "red please", "video paint: no paint"},
		{"paint green", 2, "green please", "video paint: colors: no green\nvideo paint help"},
		{"print", 2, "", `unknown command "print"`},
		{"print red", 2, "", `unknown command "print"`},
		{"print --coats 2", 2, "", `unknown command "print"`},
	} {
		var stdout, stderr bytes.Buffer
		code := s.Run(t.Context(), strings.Fields(test.args), func(string) string { return " please" }, &stdout, &stderr)
		if code != test.code || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) || (code == 0) != (stderr.Len() == 0) {
			t.Errorf("video %s: code %d, stdout %q, stderr %q", test.args, code, stdout.String(), stderr.String())
		}
	}
	var help bytes.Buffer
	s.Run(t.Context(), []string{"help"}, nil, &help, &help)
	if want := "if it is not\n  paint     paint the bicycle shed\n  version "; !strings.Contains(help.String(), want) {
		t.Errorf("help does not say %q:\n%s", want, help.String())
	}
}

func TestAProgramPrintsItsHelp(t *testing.T) {
	t.Parallel()
	flags := flag.NewFlagSet("paint", flag.ContinueOnError)
	flags.String("color", "green", "of the bicycle shed")
	var stdout, stderr bytes.Buffer
	err := ParseOrHelp(flags, []string{"--help"}, "Usage: paint [-color NAME]\n", &stdout)
	if code := Exit(&stderr, "paint", " (see --help)", err); code != 0 || stderr.Len() > 0 {
		t.Errorf("code %d, stderr %q", code, stderr.String())
	}
	if want := "Usage: paint [-color NAME]\n  -color string\n"; !strings.HasPrefix(stdout.String(), want) {
		t.Errorf("help %q, want %q", stdout.String(), want)
	}
}

// A device is a terminal, except the null device, which jobs have as stdin.
func TestTerminals(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"/dev/ptmx": true, os.DevNull: false, "tool_test.go": false} {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) && want {
			continue // a system without pseudo terminals
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := isTerminal(f); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
		_ = f.Close()
	}
}

// paintMode makes the test binary the process of a service with a tool. Its value is a file.
const paintMode = "LOCKSTEP_TEST_PAINT"

// painting is a service whose tool prints until it fails, and then makes the file.
func painting(file string) Service {
	return Service{Name: "video", Tools: []Tool{{Name: "paint", Run: func(_ context.Context, c Call) (err error) {
		for err == nil {
			_, err = fmt.Fprintln(c.Out, "a coat")
		}
		return errors.Join(err, os.WriteFile(file, nil, 0o600))
	}}}}
}

// TestAToolEndsWithoutItsReader: `dlq list | head` gives back its messages, after head has ended.
func TestAToolEndsWithoutItsReader(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "clean")
	tool := exec.CommandContext(t.Context(), os.Args[0], "paint")
	tool.Env = append(os.Environ(), paintMode+"="+file)
	var stderr bytes.Buffer
	tool.Stderr = &stderr
	out, err := tool.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tool.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Error(err)
	}
	out.Close()
	_ = tool.Wait()
	if _, err := os.Stat(file); err != nil || tool.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "broken pipe") {
		t.Errorf("%v, %v, stderr %q; want exit code 1 and the reason, after the end of the tool", err, tool.ProcessState, stderr.String())
	}
}

// A tool ends after SIGTERM although its output is not read, and so gives back what it holds.
func TestAToolEndsBehindAnOutputThatIsNotRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "clean")
	from, to := io.Pipe()
	defer from.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		ended <- painting(file).Run(ctx, []string{"paint"}, func(string) string { return "" }, to, to)
	}()
	if _, err := io.ReadFull(from, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case code := <-ended:
		if _, err := os.Stat(file); err != nil || code != 1 {
			t.Errorf("%v, exit code %d; want 1, after the end of the tool", err, code)
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits for a reader")
	}
}

// The error of a tool that a signal has ended names the signal, once.
func TestTheErrorOfAToolNamesTheSignal(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]func(context.Context) error{"the context's error": context.Context.Err, "its cause": context.Cause} {
		ctx, end := context.WithCancelCause(t.Context())
		end(errors.New("terminated signal received"))
		s := Service{Name: "video", Tools: []Tool{{Name: "paint", Run: func(ctx context.Context, _ Call) error {
			return fmt.Errorf("after 7 coats: %w", ended(ctx))
		}}}}
		var stderr bytes.Buffer
		code := s.Run(ctx, []string{"paint"}, func(string) string { return "" }, io.Discard, &stderr)
		if text := stderr.String(); code != 1 || strings.Count(text, "terminated signal received") != 1 || !strings.Contains(text, "after 7 coats") {
			t.Errorf("%s: exit code %d, %s", name, code, text)
		}
	}
}
