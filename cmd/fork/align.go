package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// columns match signs that stand below each other in successive lines. The first pattern matches
// the equals signs of a block in Terraform, whose alignment `terraform fmt` checks. The second
// pattern matches the sign of a comment at the end of a line.
var columns = []*regexp.Regexp{
	regexp.MustCompile(`^\s*[^\s=#"]\S*(\s+)= `),
	regexp.MustCompile(`^.*\S(\s+)(?:#|--) `),
}

// realigned returns the text after, aligned like the text before. Signs that stood below each other
// in successive lines of before stand below each other again. The two texts differ only in replaced
// words, so they have the same number of lines.
func realigned(before, after string) string {
	old, renewed := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, column := range columns {
		for start := 0; start < len(old); {
			at := columnOf(column, old[start])
			end := start + 1
			for at >= 0 && end < len(old) && columnOf(column, old[end]) == at && indent(old[end]) == indent(old[start]) {
				end++
			}
			if at >= 0 {
				align(column, renewed[start:end])
			}
			start = end
		}
	}
	return strings.Join(renewed, "\n")
}

// columnOf returns the column of the sign that the pattern column matches in line. It returns -1 if
// the pattern does not match.
func columnOf(column *regexp.Regexp, line string) int {
	m := column.FindStringSubmatchIndex(line)
	if m == nil {
		return -1
	}
	return utf8.RuneCountInString(line[:m[3]])
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// align moves the signs of lines to one column. It is the leftmost column that has room for every
// line and keeps the smallest gap before a sign.
func align(column *regexp.Regexp, lines []string) {
	width, gap := 0, 0
	for _, line := range lines {
		m := column.FindStringSubmatchIndex(line)
		if m == nil {
			return
		}
		width = max(width, utf8.RuneCountInString(line[:m[2]]))
		if space := m[3] - m[2]; gap == 0 || space < gap {
			gap = space
		}
	}
	for i, line := range lines {
		m := column.FindStringSubmatchIndex(line)
		lines[i] = line[:m[2]] + strings.Repeat(" ", width-utf8.RuneCountInString(line[:m[2]])+gap) + line[m[3]:]
	}
}
