package main

import (
	"strings"
	"testing"
)

// TestDigitsThatProtobufSpellsInAnotherWay: the generator makes V2Note of V2note, Comment2S of
// Comment2s, and Line_2 of line_2. The names of the code would differ.
func TestDigitsThatProtobufSpellsInAnotherWay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, fields, want string }{
		{"comment2", goodFields, `NAME: "comment2" is not a word of 1 to 20 lower-case letters`},
		{"v2note", goodFields, `NAME: "v2note" is not a word`},
		{"comment", "line2:string,line2_of:int32", ""},
		{"comment", "line_2:string", `FIELDS: "line_2" is not a name`},
		{"comment", "x2y:string", `FIELDS: "x2y" is not a name`},
	} {
		_, err := parse(test.name, test.fields, "")
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("NAME=%q FIELDS=%q: %v, want %q", test.name, test.fields, err, test.want)
		}
	}
}
