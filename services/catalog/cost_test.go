package catalog

import (
	"net/http"
	"testing"

	"example.com/lockstep/internal/attack"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/serve"
)

// See video's test of this name.
func TestNoRequestIsCostly(t *testing.T) {
	f := setUp(t)
	addr := f.listen(t)
	conn, err := connect.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer http.DefaultClient.CloseIdleConnections()
	t.Run("gRPC", func(t *testing.T) { attack.GRPC(t, conn, 2<<20) })
	t.Run("REST", func(t *testing.T) {
		attack.REST(t, newRouter(f.service, quiet(), serve.NewHealth(quiet()), openGuard()), "http://"+addr, 4<<20)
	})
}
