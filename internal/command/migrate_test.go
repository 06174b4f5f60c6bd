package command

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(paintMode); file != "" {
		os.Exit(painting(file).Main())
	}
	pairtest.Main(m)
}

// lateDatabase is a URL that leads to the same database as at, through a port without a
// listener until open is called.
func lateDatabase(t *testing.T, at string) (late string, open func()) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	u.Host = porttest.Addr(t)
	return u.String(), sync.OnceFunc(func() {
		lis, err := net.Listen("tcp", u.Host)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { lis.Close() })
		go func() {
			for {
				conn, err := lis.Accept()
				if err != nil {
					return
				}
				go pass(conn, server)
			}
		}()
	})
}

func pass(conn net.Conn, to string) {
	defer conn.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, conn)
		server.Close()
	}()
	_, _ = io.Copy(conn, server)
}

// opener is an output that calls open once it has something.
type opener struct {
	bytes.Buffer
	open func()
}

func (o *opener) Write(text []byte) (int, error) {
	o.open()
	return o.Buffer.Write(text)
}

// TestMigrateAwaitsTheNetwork: the database can be reached only after the first attempt
// has failed, as in a job with a network that comes up after it.
func TestMigrateAwaitsTheNetwork(t *testing.T) {
	t.Parallel()
	late, open := lateDatabase(t, pairtest.New(t).Admin)
	out := &opener{open: open}
	var errOut bytes.Buffer
	code := Service{Name: "video"}.Run(t.Context(), []string{"migrate"}, func(name string) string {
		return map[string]string{"DATABASE_URL": late}[name]
	}, out, &errOut)
	if code != 0 || !strings.Contains(out.String(), "waiting for the database") {
		t.Errorf("code %d, stdout %q, stderr %q; want it to wait, and to migrate", code, out.String(), errOut.String())
	}
}

// TestMigrateEndsAtOnce: migrate ends at once where waiting changes nothing, because
// the server has answered or the caller has cancelled it.
func TestMigrateEndsAtOnce(t *testing.T) {
	t.Parallel()
	migrate := func(ctx context.Context, url string, out io.Writer) (int, string) {
		var errOut bytes.Buffer
		code := Service{Name: "video"}.Run(ctx, []string{"migrate"}, func(name string) string {
			return map[string]string{"DATABASE_URL": url}[name]
		}, out, &errOut)
		return code, errOut.String()
	}
	admin, err := url.Parse(pairtest.New(t).Admin)
	if err != nil {
		t.Fatal(err)
	}
	admin.Path = "/no_such_database"
	var out bytes.Buffer
	if code, says := migrate(t.Context(), admin.String(), &out); code != 1 || !strings.Contains(says, "no_such_database") || out.Len() > 0 {
		t.Errorf("a database that is not there: code %d, stdout %q, stderr %q", code, out.String(), says)
	}
	stopped, stop := context.WithCancel(t.Context())
	late, _ := lateDatabase(t, admin.String())
	if code, says := migrate(stopped, late, &opener{open: stop}); code != 1 || !strings.Contains(says, "canceled") {
		t.Errorf("stopped while it waits: code %d, stderr %q", code, says)
	}
}
