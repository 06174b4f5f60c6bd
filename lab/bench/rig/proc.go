package rig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"example.com/lockstep/lab/bench/measure"
)

// Tick is the unit of CPU time in /proc on every architecture.
const Tick = 10 * time.Millisecond

// RSS returns the resident memory of a process in MB. Only Linux has /proc. On other systems the
// error wraps [measure.ErrMissing].
func RSS(pid int) (float64, error) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		return 0, fmt.Errorf("%w: the memory of a process is read from /proc", measure.ErrMissing)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); err == nil {
			return float64(kb<<10) / 1e6, nil
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// CPU returns the CPU time that the processes have used. It returns 0 if the time is unknown, as on
// systems without /proc.
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

// childOf returns the child process of pid, or 0 if there is none. If there are several children,
// it returns any one of them.
func childOf(pid int) (found int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // fails on a malformed pattern only
	for _, name := range files {
		if fields := statOf(name); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			_, _ = fmt.Sscan(filepath.Base(filepath.Dir(name)), &found)
		}
	}
	return found
}

// statOf returns the fields of a stat file that follow the name of the program. The name may
// contain any character. The fields are the state, the parent, and so on. If the process has ended,
// there are no fields.
func statOf(name string) []string {
	stat, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

// Profile writes a CPU profile of this process to the file name until stop is called.
func Profile(name string) (stop func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
