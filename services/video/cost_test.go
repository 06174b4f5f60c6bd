package video

import (
	"testing"

	"example.com/lockstep/internal/attack"
)

// A request may cost 4 MiB over REST and 2 MiB over gRPC: 80 at once, as many as Cloud
// Run sends, fit into the smallest instance (512 MiB) with nothing collected
// meanwhile. It is not parallel: package attack measures the process.
func TestNoRequestIsCostly(t *testing.T) {
	a := newAPI(t)
	t.Run("gRPC", func(t *testing.T) { attack.GRPC(t, a.conn, 2<<20) })
	t.Run("REST", func(t *testing.T) { attack.REST(t, a.routes, a.url, 4<<20) })
}
