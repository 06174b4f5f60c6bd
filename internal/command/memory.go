package command

import (
	"context"
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryShare leaves a tenth of the container's memory to the parts that Go's collector
// does not count: the binary, and pages of files.
const memoryShare = 0.9

// limitMemory makes the collector work harder when the heap comes near the limit of the
// container, instead of letting the heap double beyond it. GOMEMLIMIT, where it is set,
// takes precedence. It does not bound requests: their bounds are applied where they are
// read.
func limitMemory(ctx context.Context, log *slog.Logger, container memlimit.Provider) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(container))
	if err != nil { // not Linux, or no cgroup: a laptop
		log.DebugContext(ctx, "memory limit of the container not read", "error", err)
		return
	}
	log.DebugContext(ctx, "memory limit of the collector", "bytes", limit)
}
