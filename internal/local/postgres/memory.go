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
	if err := syscall.Statfs(memory, &fs); err != nil {
		return false
	}
	if size := uint64(fs.Bsize); fs.Bavail < roomInMemory/size {
		return false
	}
	info, err := os.ReadFile("/proc/meminfo")
	return err == nil && availableMemory(info) >= freeMemory
}

// availableMemory is in bytes, from the text of /proc/meminfo, and 0 if that does not have it.
func availableMemory(info []byte) (bytesFree uint64) {
	_, value, _ := bytes.Cut(info, []byte("MemAvailable:"))
	_, _ = fmt.Sscanf(string(value), "%d kB", &bytesFree) // else it stays 0
	return bytesFree << 10
}
