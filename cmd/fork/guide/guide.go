// Package guide reads the change guide, docs/adapt.md, and makes the edits that it describes.
// cmd/fork uses this package to leave out the second aggregate, as a chapter of the guide
// describes. A test uses this package to do each step in a copy of the repository. So both use the
// same text that people read.
//
// A chapter begins with a heading of the second level, or is a document of its own (see ReadChapter). The steps of a chapter are its fenced
// blocks. The language of a block decides what the block is:
//
//   - diff: edits of a file. The file is the last link in the paragraph before the block. Lines
//     that begin with @@ separate the edits. The lines of an edit that have no plus must stand in
//     the file, one after the other, in exactly one place. Differences in spaces and tabs do not
//     count, because gofmt aligns. A line +++ FILE begins the edits of another file. A line -...
//     stands for all lines up to the next line of the edit. The indentation of that next line does
//     count.
//   - sh: commands for a shell in the root of the repository. A block that has only git rm and
//     sed -i is an edit of files, too.
//   - another language: a new file. The last code span in the paragraph is its name. NNNNN in the
//     name stands for the next number of a migration.
//   - text and console: an example for the reader. Such a block is no step.
//
// A line <!-- tested with: COMMAND --> is a step, too. Its command simulates something that happens
// between two steps, or checks their result. Readers of the rendered guide do not see the line.
package guide

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Document is the path of the guide from the root of the repository.
const Document = "docs/adapt.md"

// Chapter is one change. Steps has the steps of the change in their order.
type Chapter struct {
	Title string
	Steps []Step
}

// Step is a fenced block: edits of a file, a new file, or commands.
type Step struct {
	// Line is the line of the block in the document.
	Line int
	// Part is the heading above the block that is one level below that of the chapter, or "".
	Part string
	// File is the path of the file that the step edits or makes. It is "" if the step consists of
	// commands.
	File string
	// Edits are the edits of File. If Edits is nil, the step makes a new File with the content
	// Text.
	Edits []string
	// Text is the text of a new file, or the commands.
	Text string
}

// Read reads the guide of the repository at root.
func Read(root string) ([]Chapter, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(Document)))
	if err != nil {
		return nil, err
	}
	return parse(Document, string(text), "##")
}

// ReadChapter reads a document of the repository at root that is a single chapter. Its title is a heading
// of the first level, and the headings of its parts are of the second.
func ReadChapter(root, document string) (Chapter, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(document)))
	if err != nil {
		return Chapter{}, err
	}
	chapters, err := parse(document, string(text), "#")
	if err == nil && len(chapters) != 1 {
		err = fmt.Errorf("%s has %d titles, want one", document, len(chapters))
	}
	if err != nil {
		return Chapter{}, err
	}
	return chapters[0], nil
}

// Find returns the chapter whose title begins with title.
func Find(chapters []Chapter, title string) (Chapter, error) {
	for _, c := range chapters {
		if strings.HasPrefix(c.Title, title) {
			return c, nil
		}
	}
	return Chapter{}, fmt.Errorf("%s has no chapter %q", Document, title)
}

var (
	linked = regexp.MustCompile(`\]\(\.\./([^)#]+)\)`)
	quoted = regexp.MustCompile("`([^`\\s]+)`")
	hidden = regexp.MustCompile(`^<!-- tested with: (.+) -->$`)
	item   = regexp.MustCompile(`^(?:[-*]|\d+\.) `)
)

// reader is the state of parse after a line.
type reader struct {
	level     string // the mark of a chapter's heading, such as ##
	chapters  []Chapter
	part      string
	paragraph string // the paragraph above the line
	ended     bool   // an empty line came behind the paragraph
	kind      string // language of the open block; "" outside of blocks
	block     []string
	start     int
}

// parse parses a document whose chapters have headings with the mark level.
func parse(document, text, level string) ([]Chapter, error) {
	r := &reader{level: level}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if err := r.line(number, strings.TrimRight(line, "\n")); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", document, number, err)
		}
	}
	if r.kind != "" {
		return nil, fmt.Errorf("%s:%d: the block has no end", document, r.start)
	}
	return r.chapters, nil
}

func (r *reader) line(number int, line string) error {
	if kind, fence := strings.CutPrefix(line, "```"); fence {
		if r.kind == "" {
			if kind == "" {
				return errors.New("a block without a language")
			}
			r.kind, r.start, r.block = kind, number, nil
			return nil
		}
		err := r.step()
		r.kind, r.paragraph = "", ""
		return err
	}
	if r.kind != "" {
		r.block = append(r.block, line)
		return nil
	}
	if title, chapter := strings.CutPrefix(line, r.level+" "); chapter {
		r.chapters, r.part, r.paragraph = append(r.chapters, Chapter{Title: title}), "", ""
		return nil
	}
	if part, found := strings.CutPrefix(line, r.level+"# "); found {
		r.part, r.paragraph = part, ""
		return nil
	}
	if m := hidden.FindStringSubmatch(line); m != nil {
		r.kind, r.start, r.block = "sh", number, []string{m[1]}
		err := r.step()
		r.kind = ""
		return err
	}
	if r.ended && line != "" || item.MatchString(line) {
		r.paragraph = ""
	}
	r.ended = line == ""
	r.paragraph += line + "\n"
	return nil
}

// step adds the block that has just ended to the last chapter.
func (r *reader) step() error {
	if r.kind == "text" || r.kind == "console" {
		return nil
	}
	if len(r.chapters) == 0 {
		return errors.New("a step before the first chapter")
	}
	s := Step{Line: r.start, Part: r.part, Text: strings.Join(r.block, "\n") + "\n"}
	switch r.kind {
	case "sh":
	case "diff":
		return r.diff(s)
	default:
		found := quoted.FindAllStringSubmatch(r.paragraph, -1)
		if !strings.Contains(r.paragraph, "new file") || len(found) == 0 {
			return errors.New("the paragraph above names no new file")
		}
		s.File = found[len(found)-1][1]
	}
	r.add(s)
	return nil
}

func (r *reader) add(s Step) {
	chapter := &r.chapters[len(r.chapters)-1]
	chapter.Steps = append(chapter.Steps, s)
}

// diff adds a step for each file of a diff. If the block does not name the first file, the
// paragraph above the block does.
func (r *reader) diff(s Step) error {
	if found := linked.FindAllStringSubmatch(r.paragraph, -1); len(found) > 0 {
		s.File = found[len(found)-1][1]
	}
	var run []string
	for i, line := range append(r.block, "+++ ") {
		name, next := strings.CutPrefix(line, "+++ ")
		if !next {
			run = append(run, line)
			continue
		}
		if s.Edits = edits(run); s.Edits != nil {
			if s.File == "" {
				return errors.New("the paragraph above links to no file")
			}
			r.add(s)
		}
		s.File, s.Line, run = name, r.start+i+1, nil
	}
	return nil
}

// edits returns the edits in block. Lines that begin with @@ separate them.
func edits(block []string) (all []string) {
	var run []string
	for _, line := range append(block, "@@") {
		if !strings.HasPrefix(line, "@@") {
			run = append(run, line)
			continue
		}
		if len(run) > 0 {
			all = append(all, strings.Join(run, "\n"))
		}
		run = nil
	}
	return all
}
