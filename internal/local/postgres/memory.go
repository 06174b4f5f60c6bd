package postgres

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

const (
	// memory is the directory in which Linux keeps files in memory.
	memory = "/dev/shm"
	// A server may keep its files in memory if roomInMemory bytes are free in /dev/shm, and freeMemory bytes
	// on the machine. The databases of all tests that run at one time take less than 2 GB.
	roomInMemory, freeMemory = 4 << 30, 8 << 30
)

// temporary returns the directory for the files of a server. It is TMPDIR if that is set. Otherwise
// it is /dev/shm if inMemory asks for that and there is room, or else the system's temporary
// directory.
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

// availableMemory returns the available memory in bytes, from the text of /proc/meminfo. It returns
// 0 if the text does not have it.
func availableMemory(info []byte) (bytesFree uint64) {
	_, value, _ := bytes.Cut(info, []byte("MemAvailable:"))
	_, _ = fmt.Sscanf(string(value), "%d kB", &bytesFree) // if it fails, bytesFree stays 0
	return bytesFree << 10
}
