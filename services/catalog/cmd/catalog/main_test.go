package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args        string
		code        int
		out, errOut string
	}{
		{"--help", 0, "usage: catalog", ""},
		{"-h", 0, "usage: catalog", ""},
		{"help", 0, "usage: catalog", ""},
		{"serve --help", 0, "usage: catalog", ""},
		{"migrate --help", 0, "usage: catalog", ""},
		{"", 1, "", "VIDEO_SERVICE_ADDR is required"},
		{"serve", 1, "", "DATABASE_URL is required"},
		{"migrate", 1, "", "DATABASE_URL is required"},
		{"destroy", 2, "", "unknown command"},
		{"serve now", 2, "", `unexpected argument "now"`},
		{"--fast", 2, "", "-fast"},
		{"serve --inbox-retention 24h", 2, "", "at least 192h"},
		{"serve --inbox-retention 200h", 1, "", "DATABASE_URL is required"},
		{"--help", 0, "-inbox-retention value", ""},
	} {
		var out, errOut bytes.Buffer
		code := service().Run(t.Context(), strings.Fields(tc.args), func(string) string { return "" }, &out, &errOut)
		if code != tc.code || !strings.Contains(out.String(), tc.out) || !strings.Contains(errOut.String(), tc.errOut) {
			t.Errorf("catalog %s: code %d, stdout %q, stderr %q", tc.args, code, out.String(), errOut.String())
		}
		if tc.code == 0 && errOut.Len() > 0 || tc.code != 0 && out.Len() > 0 {
			t.Errorf("catalog %s: output on the wrong stream: stdout %q, stderr %q", tc.args, out.String(), errOut.String())
		}
	}
}
