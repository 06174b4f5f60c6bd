// Package livepage tests the live page of `make run` in a browser. It tests the buttons and their
// effects on a real pair, the accessibility of the page, its weight, and its frames under load.
package livepage
