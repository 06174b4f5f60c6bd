package postgres

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

const (
	// memory is where Linux keeps files in memory.
	memory = "/dev/shm"
	// roomInMemory is free there, and freeMemory on the machine, where servers keep their files in
	// memory: the databases of all tests that run at one time take less than 2 GB.
	roomInMemory, freeMemory = 4 << 30, 8 << 30
)

// temporary is the directory for the files of a server: where files are in memory, if that is asked
// for and has room, unless TMPDIR names another one.
func temporary(inMemory bool) string {
	if inMemory && os.Getenv("TMPDIR") == "" && hasRoom() {
		return memory
	}
	return os.TempDir()
}

func hasRoom() bool {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < roomInMemory { //nolint:gosec,unconvert // a size; its type is another on other systems
		return false
	}
	info, err := os.ReadFile("/proc/meminfo")
	return err == nil && availableMemory(info) >= freeMemory
}

// availableMemory is in bytes, from the text of /proc/meminfo, and 0 if that does not have it.
func availableMemory(info []byte) (bytesFree uint64) {
	const field = "MemAvailable:"
	if at := bytes.Index(info, []byte(field)); at >= 0 {
		_, _ = fmt.Sscanf(string(info[at+len(field):]), "%d kB", &bytesFree)
	}
	return bytesFree << 10
}
