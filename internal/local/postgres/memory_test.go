package postgres

import (
	"os"
	"testing"
)

func TestFilesAreInMemoryWhereThereIsRoom(t *testing.T) {
	t.Setenv("TMPDIR", "")
	onDisk, inMemory := temporary(false), temporary(true)
	if onDisk != os.TempDir() || hasRoom() != (inMemory == memory) {
		t.Errorf("files are in %s, those in memory in %s, which has room: %t", onDisk, inMemory, hasRoom())
	}
	own := t.TempDir()
	t.Setenv("TMPDIR", own)
	if got := temporary(true); got != own {
		t.Errorf("files are in %s, although TMPDIR is %s", got, own)
	}
}

func TestAvailableMemory(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]uint64{
		"MemTotal:       24605000 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\nBuffers: 2 kB\n": 16 << 30,
		"MemTotal: 24605000 kB\n": 0, "": 0, "MemAvailable: much\n": 0,
	} {
		if got := availableMemory([]byte(info)); got != want {
			t.Errorf("%q: %d bytes, want %d", info, got, want)
		}
	}
}
