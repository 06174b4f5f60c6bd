package main

import "testing"

// TestPlainWordsAreFree: examples have words that are rare as those of a team. A fork has a
// domain of its own, and does without this test.
func TestPlainWordsAreFree(t *testing.T) {
	t.Parallel()
	needsGit(t)
	files, _, err := readRepository(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{
		"product", "inventory", "storefront", "shop", "customer", "invoice", "booking", "recipe",
		"review", "photo", "song", "film", "warehouse", "playlist",
	} {
		if at := uses(word, files); at != "" {
			t.Errorf("%s has %q, so that a fork cannot have this word", at, word)
		}
	}
}
