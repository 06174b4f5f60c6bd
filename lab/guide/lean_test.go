package guide_test

import (
	"path/filepath"
	"strings"
	"testing"

	"example.com/lockstep/cmd/fork/guide"
)

// TestTheGuideOfALeanFork makes the edits of each chapter in a copy of the repository without the
// second aggregate, as that copy's own guide has them. It generates and compiles nothing: .ci/full
// follows the guide of such a fork.
func TestTheGuideOfALeanFork(t *testing.T) {
	t.Parallel()
	root, tools := repository(t)
	chapters, err := guide.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	const title = "Remove engagements"
	removal, err := guide.Find(chapters, title)
	if left, _ := filepath.Glob(filepath.Join(root, "services/*/engagements.go")); err != nil && len(left) == 0 { // the only error is a wrong pattern
		t.Skip("this repository has no engagements: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	lean := copied(t, root, tools)
	if err := removal.Edit(t.Context(), lean.dir); err != nil {
		t.Fatal(err)
	}
	// The chapter edits a table of metrics, whose texts are those of the code.
	lean.run(t, lean.dir, "go test -count=1 -run '^TestInstrumentsAreDeclared$' ./internal/monitoring")
	if chapters, err = guide.Read(lean.dir); err != nil {
		t.Fatal(err)
	}
	for _, chapter := range chapters {
		if strings.HasPrefix(chapter.Title, title) {
			continue
		}
		t.Run(chapter.Title, func(t *testing.T) {
			t.Parallel()
			if err := chapter.Edit(t.Context(), copied(t, lean.dir, tools).dir); err != nil {
				t.Error(err)
			}
		})
	}
}
