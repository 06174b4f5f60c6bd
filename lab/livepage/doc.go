// Package livepage tests the live page of `make run` in a browser: its buttons and what they
// do to a real pair, its accessibility, its weight, and its frames under load.
package livepage
