package operator

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// progressEvery is the time between two lines in a log.
	progressEvery = 10 * time.Second
	// barEvery is the time between two moves of the bar on a terminal.
	barEvery = 200 * time.Millisecond
	barWidth = 30
)

// clearLine makes a terminal remove the rest of the line. The rest may be the end of a longer line
// that was there before.
const clearLine = "\x1b[K"

// progress shows how far a long command is. It is a bar on a terminal, and elsewhere a line now
// and then.
type progress struct {
	to       io.Writer
	terminal bool
	unit     string // rows, or what else is counted

	name        string
	done, total int64
	shown       time.Time
	whole       bool // the part has ended without an error
}

func (s *invocation) progress() progress {
	return progress{to: s.Err, terminal: s.ErrIsTerminal, unit: "rows"}
}

// begin starts a part of about total units.
func (p *progress) begin(name string, total int64) {
	p.name, p.done, p.total, p.shown, p.whole = name, 0, total, time.Now(), false
}

func (p *progress) add(units int64) {
	p.done += units
	every := progressEvery
	if p.terminal {
		every = barEvery
	}
	if time.Since(p.shown) >= every {
		p.shown = time.Now()
		p.show()
	}
}

// end leaves the last state of the bar on the terminal. The bar is full, unless the part has
// failed.
func (p *progress) end(failed error) {
	if !p.terminal {
		return
	}
	if p.whole = failed == nil; p.whole {
		p.total = p.done
	}
	p.show()
	fmt.Fprintln(p.to)
}

// sayf writes a line. The bar is drawn again below it.
func (p *progress) sayf(format string, args ...any) {
	if p.terminal {
		fmt.Fprint(p.to, "\r"+clearLine)
		p.shown = time.Time{}
	}
	fmt.Fprintf(printable{p.to}, format+"\n", args...)
}

// waits says that a comparison waits for rows whose events may be on their way. After grace most of them are decided.
func (p *progress) waits(aggregateType string, rows int, grace time.Duration) {
	p.sayf("%s: %d rows may differ because of events on their way: looking again, for %s or longer", aggregateType, rows, grace)
}

func (p *progress) show() {
	if !p.terminal {
		fmt.Fprintf(p.to, "%s: %s\n", p.name, p.count())
		return
	}
	full := 0
	switch {
	case p.whole:
		full = barWidth
	case p.total > 0: // the estimate may be too low, so only end fills the bar
		full = min(int(p.done*barWidth/p.total), barWidth-1)
	}
	fmt.Fprintf(p.to, "\r%s [%s%s] %s%s",
		p.name, strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), p.count(), clearLine)
}

// count says how many units are done, and of how many. It names no total that is below the units done, because total
// is an estimate, and 0 where none is known.
func (p *progress) count() string {
	if p.done > p.total {
		return fmt.Sprintf("%d %s", p.done, p.unit)
	}
	return fmt.Sprintf("%d of about %d %s", p.done, p.total, p.unit)
}
