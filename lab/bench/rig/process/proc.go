// Package process measures the cost of processes, as far as Linux reports it in
// /proc (elsewhere memory is left out, and CPU time is 0). It also starts this
// binary again as a server in its own process, so that the server's memory and
// CPU can be measured alone.
package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.com/lockstep/lab/bench/measure"
)

// Tick is the unit of CPU time in /proc on every architecture.
const Tick = 10 * time.Millisecond

// RSS is the resident memory of a process in MB.
func RSS(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("%w: the memory of a process is read from /proc", measure.ErrMissing)
	}
	for line := range strings.Lines(string(status)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); err == nil {
			return float64(kb<<10) / 1e6, nil
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// CPU is the CPU time that processes have used; 0 if it is unknown.
func CPU(pids ...int) (used time.Duration) {
	for _, pid := range pids {
		used += cpuOf(pid)
	}
	return used
}

func cpuOf(pid int) time.Duration {
	fields := statOf(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if len(fields) < 13 {
		return 0
	}
	var user, system int64
	_, _ = fmt.Sscan(fields[11], &user)
	_, _ = fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * Tick
}

// ChildOf returns the child process of pid, 0 if there is none. With several
// children it returns any one of them.
func ChildOf(pid int) (found int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // fails on a malformed pattern only
	for _, name := range files {
		if fields := statOf(name); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			_, _ = fmt.Sscan(filepath.Base(filepath.Dir(name)), &found)
		}
	}
	return found
}

// statOf returns the fields after the name of the program, which may contain
// any character: the state, the parent, and so on. It is empty for a process
// that has ended.
func statOf(name string) []string {
	stat, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}
