package main

import "testing"

// TestRename has each spelling of a word, and the most similar text that is none.
func TestRename(t *testing.T) {
	t.Parallel()
	to := words{aggregate: "berry", plural: "berries", owner: "hedge", reader: "kiosk", name: "island"}
	r := newRenamer(sample, to, nil)
	for text, want := range map[string]string{
		"apple apples Apple Apples APPLE APPLES":           "berry berries Berry Berries BERRY BERRIES",
		"apple_id appleID newAppleID APPLE_ID applesByDay": "berry_id berryID newBerryID BERRY_ID berriesByDay",
		"applev1.Apple appleeventsv1 appleStore ApplesIn":  "berryv1.Berry berryeventsv1 berryStore BerriesIn",
		"orchard.apples market-farm FARM_FULL":             "hedge.berries kiosk-island ISLAND_FULL",
		`"\napple" "\tmarket"`:                             `"\nberry" "\tkiosk"`,
		"pineapple appletree farmer farmhouse supermarket": "pineapple appletree farmer farmhouse supermarket",
		"the Farm authors":                                 "the Farm authors",
		"#markets-table":                                   "#kiosks-table",
	} {
		if got := r.text("a.txt", text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := r.name("services/orchard/apple_test.go"); got != "services/hedge/berry_test.go" {
		t.Errorf("a path becomes %s", got)
	}
}

func TestArticles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"An apple, an `apple` and a market": "A pear, a `pear` and an item",
		"#add-a-field-to-an-apple":          "#add-a-field-to-a-pear",
		"func TestLifeOfAnApple(":           "func TestLifeOfAPear(", "TestAMarket": "TestAnItem",
		"data apple": "data pear", "a.apple": "a.pear", "func (a market) b()": "func (an item) b()",
	} {
		r := newRenamer(sample, words{aggregate: "pear", plural: "pears", owner: "unicorn", reader: "item", name: "farm"}, nil)
		if got := r.text("a.txt", text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	r := newRenamer(sample, words{aggregate: "pear", plural: "pears", owner: "unicorn", reader: "item", name: "farm"}, nil)
	if got := r.text("a.go", "package a\n\nfunc (a market) b() {} // b of a market\n"); got != "package a\n\nfunc (a item) b() {} // b of an item\n" {
		t.Errorf("a receiver, and a comment: %q", got)
	}
}

// TestLinesStaySorted: other words have another order.
func TestLinesStaySorted(t *testing.T) {
	t.Parallel()
	r := newRenamer(sample, words{aggregate: "berry", plural: "berries", owner: "hedge", reader: "kiosk", name: "island"}, nil)
	for name, c := range map[string]struct{ text, want string }{
		grants: {"market-service  a\norchard-service  b\n", "hedge-service  b\nkiosk-service  a\n"},
		"proto/a.proto": {
			"import \"market/v1/a.proto\";\nimport \"orchard/v1/a.proto\";\n\nmessage Z {}\n",
			"import \"hedge/v1/a.proto\";\nimport \"kiosk/v1/a.proto\";\n\nmessage Z {}\n",
		},
	} {
		got, err := r.file(file{name: name, content: []byte(c.text)}, "example.com/old", "example.org/new")
		if err != nil || string(got.content) != c.want {
			t.Errorf("%s: %q (%v), want %q", name, got.content, err, c.want)
		}
	}
}
