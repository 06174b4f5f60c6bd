package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// columns match the signs that stand below each other in successive lines. These are the equals
// signs of a block in Terraform, which `terraform fmt` checks, and the signs of comments behind
// lines.
var columns = []*regexp.Regexp{
	regexp.MustCompile(`^\s*[^\s=#"]\S*(\s+)= `),
	regexp.MustCompile(`^.*\S(\s+)(?:#|--) `),
}

// realigned returns the text after with the columns of the text before. If successive lines had
// a sign below each other, they have it again. Both texts have the same lines, except for
// replaced words.
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

// columnOf returns the column of the sign, or -1.
func columnOf(column *regexp.Regexp, line string) int {
	m := column.FindStringSubmatchIndex(line)
	if m == nil {
		return -1
	}
	return utf8.RuneCountInString(line[:m[3]])
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// align moves the signs of lines to the first column that all of them can have.
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
