package telemetry_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/internal/telemetry"
)

// TestAnOutputThatIsNotReadHoldsNothingUp: all lines together wait a second for an output that takes none. When it
// takes lines again, the log says how many are lost, and goes on.
func TestAnOutputThatIsNotReadHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		log := telemetry.Logger(w, slog.LevelInfo, "video", "")
		began := time.Now()
		for range 100 {
			log.Info("line")
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("100 lines take %s, want a second", took)
		}

		next := make(chan string)
		go func() {
			lines := bufio.NewScanner(r)
			for lines.Scan() {
				var line struct {
					Message, Severity, Service string
					Lines                      int
				}
				if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
					t.Error(err)
				}
				next <- fmt.Sprint(line)
			}
			close(next)
		}()
		for _, want := range []string{
			"{line INFO video 0}",
			"{lines of the log are lost, because the output took no line for too long WARNING video 99}",
		} {
			if got := <-next; got != want {
				t.Errorf("the log has %s, want %s", got, want)
			}
		}
		synctest.Wait()
		for range 3 {
			go log.Info("again")
			if got := <-next; got != "{again INFO video 0}" {
				t.Errorf("the log has %s, want the next line", got)
			}
		}
		w.Close()
		if got, more := <-next; more {
			t.Errorf("the log has %s, want nothing more", got)
		}
	})
}
