package repo

import "testing"

func TestPlural(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"apple": "apples", "category": "categories", "day": "days", "box": "boxes", "news": "newses", "match": "matches", "wish": "wishes", "class": "classes",
		"quiz": "quizzes", "buzz": "buzzes", "topaz": "topazes",
	} {
		if got := Plural(word); got != want {
			t.Errorf("plural of %s is %s, want %s", word, got, want)
		}
	}
}

func TestArticle(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"unicorn": "a", "umbrella": "an", "apple": "an", "market": "a"} {
		if got := Article(word); got != want {
			t.Errorf("%s %s, want %s", got, word, want)
		}
	}
}
