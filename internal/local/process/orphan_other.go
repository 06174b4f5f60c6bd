//go:build !linux

package process

import "syscall"

// dieWithParent has no counterpart outside Linux.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
