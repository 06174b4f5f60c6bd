//go:build !linux

package process

import "syscall"

// dieWithParent does nothing, because only Linux can signal a child when its parent ends.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
