package guide_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/porttest"
)

const (
	// example is the folder of the services that have no event yet.
	example = "lab/guide/testdata/shop"
	// patience bounds each wait for the services.
	patience = time.Minute
	// grace is a second more than an end of the services takes.
	grace = 10 * time.Second
)

// shop is the example with its databases and its local Pub/Sub.
type shop struct {
	admin    *postgres.Server
	orders   *pgxpool.Pool // of the administrator
	shipping *pgxpool.Pool
	broker   string
	urls     map[string]string // by service
	env      map[string][]string
}

// newShop has databases without tables, and roles: an owner, which may create roles, and a service's own.
func newShop(t *testing.T) *shop {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s := &shop{admin: server, urls: map[string]string{}, env: map[string][]string{}}
	admin := s.pool(t, server.URL())
	for _, service := range []string{"orders", "shipping"} {
		for _, sql := range []string{
			`CREATE ROLE %[1]s_owner LOGIN CREATEROLE`, `CREATE ROLE %[1]s_app LOGIN`, `CREATE DATABASE %[1]s OWNER %[1]s_owner`,
		} {
			if _, err := admin.Exec(t.Context(), fmt.Sprintf(sql, service)); err != nil {
				t.Fatal(err)
			}
		}
		addr := porttest.Addr(t)
		s.urls[service] = "http://" + addr
		s.env[service] = append(os.Environ(), "ADDR="+addr, "GOOGLE_CLOUD_PROJECT=shop",
			"DATABASE_URL="+s.url(t, service, service+"_app"), "ADMIN_DATABASE_URL="+s.url(t, service, service+"_owner"))
	}
	s.orders, s.shipping = s.pool(t, s.url(t, "orders", "postgres")), s.pool(t, s.url(t, "shipping", "postgres"))
	return s
}

func (s *shop) url(t *testing.T, database, role string) string {
	t.Helper()
	url, err := postgres.ServiceURL(t.Context(), s.admin.URL(), database, role)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

func (s *shop) pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// startBroker starts the local Pub/Sub with the resources of the chapter.
func (s *shop) startBroker(t *testing.T, root string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "localpubsub")
	output(t, exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "localpubsub"), "build", "-o", program, "./cmd/localpubsub"))
	s.broker = porttest.Addr(t)
	s.launch(t, exec.CommandContext(t.Context(), program, "--addr", s.broker, "--init", filepath.Join(root, example, "pubsub.yaml")))
	await(t, "the local Pub/Sub", func() bool { return s.faults(t.Context(), "{}") == nil })
	for service, env := range s.env {
		s.env[service] = append(env, "PUBSUB_EMULATOR_HOST="+s.broker, "ORDERS_URL="+s.urls["orders"])
	}
}

// faults sets the faults of the local Pub/Sub.
func (s *shop) faults(ctx context.Context, plan string) error {
	_, err := call(ctx, http.MethodPut, "http://"+s.broker+"/control/faults", plan)
	return err
}

// build compiles the services of the example, and returns the folder of their programs.
func build(t *testing.T, root string) (programs string) {
	t.Helper()
	programs = t.TempDir()
	output(t, exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, example), "build", "-o", programs+"/", "./orders", "./shipping"))
	return programs
}

// command runs a command of a service to its end.
func (s *shop) command(t *testing.T, programs, service, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, service), command)
	cmd.Env = s.env[service]
	output(t, cmd)
}

// start starts a service, and returns when it is healthy.
func (s *shop) start(t *testing.T, programs, service string) *process.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, service))
	cmd.Env = s.env[service]
	p := s.launch(t, cmd)
	await(t, service, func() bool {
		_, err := call(t.Context(), http.MethodGet, s.urls[service]+"/healthz", "")
		return err == nil
	})
	return p
}

func (*shop) launch(t *testing.T, cmd *exec.Cmd) *process.Process {
	t.Helper()
	p, err := process.Start(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(syscall.SIGTERM, grace); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), p.Output())
		}
	})
	return p
}

// end ends a service with the signal.
func end(t *testing.T, p *process.Process, sig syscall.Signal) {
	t.Helper()
	if err := p.Stop(sig, grace); err != nil {
		t.Error(err)
	}
}

func output(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

// call sends a request, and returns the body of its answer.
func call(ctx context.Context, method, url, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
	}
	return string(text), err
}

// place places an order of one item, and returns its id.
func (s *shop) place(t *testing.T) (id int64) {
	t.Helper()
	text, err := call(t.Context(), http.MethodPost, s.urls["orders"]+"/orders", `{"customer": "ada", "item": "chair", "quantity": 1}`)
	if err != nil {
		t.Fatal(err)
	}
	var order struct {
		ID int64 `json:"id"`
	}
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		t.Fatal(err)
	}
	return order.ID
}

// change changes the quantity of an order to each number of a range.
func (s *shop) change(t *testing.T, id int64, from, to int) {
	t.Helper()
	for quantity := from; quantity <= to; quantity++ {
		_, err := call(t.Context(), http.MethodPut, fmt.Sprintf("%s/orders/%d", s.urls["orders"], id), fmt.Sprintf(`{"quantity": %d}`, quantity))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// await waits until is is true.
func await(t *testing.T, subject string, is func() bool) {
	t.Helper()
	limit := time.After(patience)
	for tick := time.Tick(20 * time.Millisecond); !is(); <-tick {
		select {
		case <-limit:
			t.Fatalf("%s: not after %s", subject, patience)
		default:
		}
	}
}
