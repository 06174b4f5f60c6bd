package main

import "testing"

func TestRealigned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after, want string }{
		"longer":  {"  a    = 1\n  apple = 2\n  bb   = 3", "  a    = 1\n  pineapple = 2\n  bb   = 3", "  a    = 1\n  pineapple = 2\n  bb   = 3"},
		"a block": {"  a     = 1\n  apple = 2\n\n  b = 3", "  a     = 1\n  berries = 2\n\n  b = 3", "  a       = 1\n  berries = 2\n\n  b = 3"},
		"shorter": {"apple = 2\nb     = 3", "fig = 2\nb     = 3", "fig = 2\nb   = 3"},
		"comments": {"make apple   # one\nmake b       # two", "make berries   # one\nmake b       # two",
			"make berries   # one\nmake b         # two"},
		"nothing": {"a = apple\n  b    # c", "a = fig\n  b    # c", "a = fig\n  b    # c"},
	} {
		if got := realigned(c.before, c.after); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
