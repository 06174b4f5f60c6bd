package operator

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"example.com/lockstep/pkg/eventing/operator/deadletter"
)

const (
	// shownLetters is the most dead letters that a text has a line for. If there are more, the text has the number of
	// dead letters for each reason or result as well.
	shownLetters = 100
	// shownGroups is the most reasons or results that such a text counts.
	shownGroups = 20
)

// moreLetters is the note on a Batch that is partial.
const moreLetters = "There are more dead letters than one command takes (10,000, or 64 MiB of messages): settle these first."

// marked returns copies of unread dead letters, with a word in place of the message.
func marked(unread []deadletter.Letter) []deadletter.Letter {
	marked := slices.Clone(unread)
	for i := range marked {
		marked[i].MessageID = "unread"
	}
	return marked
}

// printLetters prints a line for each of the first limit dead letters. If there are more, it also counts all of them by
// their reasons.
func printLetters(w io.Writer, letters []deadletter.Letter, limit int) {
	for _, l := range letters[:min(limit, len(letters))] {
		printLetter(w, l)
	}
	if len(letters) <= limit {
		return
	}
	fmt.Fprintf(w, "\n%d of %d dead letters are shown; --json shows all. All of them by reason:\n", limit, len(letters))
	printGroups(w, "REASON", letters, func(l deadletter.Letter) string { return l.Reason })
}

func printLetter(w io.Writer, l deadletter.Letter) {
	fmt.Fprintf(w, "%s\t%s/%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", l.ID(), l.AggregateType, l.AggregateID, l.Version, l.Type,
		l.Status, l.Attempts, stamp(l.Since), l.Subscription, cmp.Or(l.MessageID, "gone"), oneLine(l.Reason))
}

// printGroups counts items by their text, and prints the largest groups.
func printGroups[T any](w io.Writer, title string, items []T, text func(T) string) {
	number := map[string]int{}
	for _, item := range items {
		number[oneLine(text(item))]++
	}
	groups := slices.SortedFunc(maps.Keys(number), func(one, other string) int {
		return cmp.Or(cmp.Compare(number[other], number[one]), cmp.Compare(one, other))
	})
	fmt.Fprintf(w, "LETTERS\t%s\n", title)
	for _, g := range groups[:min(shownGroups, len(groups))] {
		fmt.Fprintf(w, "%d\t%s\n", number[g], g)
	}
	if others := len(groups) - shownGroups; others > 0 {
		fmt.Fprintf(w, "and %d others\n", others)
	}
}
