//go:build !linux

package process

import "syscall"

// dieWithParent does nothing outside Linux, where no such signal exists.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
