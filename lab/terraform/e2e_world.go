package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/lab/fakegcp"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/migrations"
)

// The project is that of the mocked tests, so that the grants can be compared.
const (
	projectID     = "acme-test"
	projectNumber = "123456789012"
	region        = "europe-west1"
	readme        = moduleDir + "/README.md"
	rolesScript   = moduleDir + "/roles.sql"
)

// A world is a simulated Google Cloud project: a stand-in for the control
// plane, a Pub/Sub and a database, with Terraform's view of it.
type world struct {
	name      string
	rehearsal *rehearsal
	pubsub    *localpubsub.Server
	fake      *fakegcp.Server
	module    *module
	adminURL  string // of the world's own database

	mu     sync.Mutex
	jobs   []string // that have run
	broken string   // the service with revisions that do not start
}

// ran returns the jobs that have run since the last call, sorted.
func (w *world) ran() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs := slices.Sorted(slices.Values(w.jobs))
	w.jobs = nil
	return jobs
}

var (
	enabling = regexp.MustCompile(`gcloud services enable ((?:[a-z.]+|\\\n|\s)+)`)
	first    = regexp.MustCompile(`terraform apply (-target=(?:.*\\\n)*.*)`)
	target   = regexp.MustCompile(`-target=(\S+)`)
)

// newWorld also enables the services that the README enables, and no others.
func (r *rehearsal) newWorld(ctx context.Context, name string) (w *world, err error) {
	w = &world{name: name, rehearsal: r}
	text, err := os.ReadFile(readme)
	if err != nil {
		return w, err
	}
	enabled := enabling.FindSubmatch(text)
	if enabled == nil {
		return w, fmt.Errorf("%s enables no services", readme)
	}
	if w.pubsub, err = localpubsub.Start(localpubsub.Options{}); err != nil {
		return w, err
	}
	w.fake, err = fakegcp.Start(fakegcp.Options{
		Project: projectID, Number: projectNumber, PubSub: "http://" + w.pubsub.Addr(), Execute: w.execute, Start: w.start,
		Enabled: strings.Fields(strings.ReplaceAll(string(enabled[1]), "\\\n", " ")),
	})
	if err != nil {
		return w, err
	}
	if w.module, err = newModule(r.plugins); err != nil {
		return w, err
	}
	w.module.environment = append(w.module.environment, w.fake.Environment()...)
	err = w.createDatabase(ctx)
	return w, err
}

func (w *world) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.rehearsal.postgres.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{w.name}.Sanitize()); err != nil {
		return err
	}
	// The superuser has access to all databases.
	w.adminURL, err = postgres.ServiceURL(ctx, w.rehearsal.postgres.URL(), w.name, "postgres")
	return err
}

func (w *world) close() error {
	var errs []error
	if w.module != nil {
		errs = append(errs, w.module.remove())
	}
	if w.fake != nil {
		errs = append(errs, w.fake.Close())
	}
	if w.pubsub != nil {
		errs = append(errs, w.pubsub.Close())
	}
	return errors.Join(errs...)
}

func (w *world) did(step, seen string) { w.rehearsal.did(w.name+": "+step, seen) }

// variables describe a project that has everything, as the mocked test of the
// grants does, and in addition instances that grant nothing.
func (w *world) variables(digest string) variables {
	image := func(service string) string {
		return fmt.Sprintf("%s-docker.pkg.dev/%s/lockstep/%s@sha256:%s", region, projectID, service, strings.Repeat(digest, 64))
	}
	return variables{
		"project_id": projectID, "project_number": projectNumber, "region": region,
		"video": map[string]any{
			"image": image("video"), "min_instances": 0, "drain_schedule": "*/5 * * * *", "workers": 1, "invokers": []string{"user:me@example.com"},
		},
		"catalog": map[string]any{
			"image": image("catalog"), "workers": 1, "invokers": []string{"user:me@example.com", "group:readers@example.com"},
		},
		"network": map[string]any{
			"network":    "projects/" + projectID + "/global/networks/default",
			"subnetwork": "projects/" + projectID + "/regions/" + region + "/subnetworks/default",
		},
		"cloud_sql": map[string]any{"max_connections": 140}, "github_repository": "acme/pair", "github_repository_id": "123456789",
	}
}

// prepare applies the resources that the README applies first, and fills the
// secrets.
func (w *world) prepare(ctx context.Context, v variables) error {
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	var targets []string
	for _, found := range target.FindAllSubmatch(first.Find(text), -1) {
		targets = append(targets, string(found[1]))
	}
	if len(targets) == 0 {
		return fmt.Errorf("%s makes nothing first", readme)
	}
	if err := w.module.apply(ctx, v, targets...); err != nil {
		return err
	}
	// The README reads this output before it creates anything else.
	connection, err := w.module.terraform(ctx, "output", "-raw", "sql_connection")
	if err != nil || !bytes.HasSuffix(connection, []byte(":lockstep")) {
		return fmt.Errorf("terraform output -raw sql_connection: %q, %w, want the instance's", connection, err)
	}
	w.did("apply what comes first", strings.Join(targets, " "))
	if err := w.makeRoles(ctx); err != nil {
		return err
	}
	for _, service := range []migrations.Service{migrations.Video, migrations.Catalog} {
		for name, role := range map[string]string{"-database-url": service.Role(), "-admin-database-url": string(service) + "_owner"} {
			url, err := postgres.ServiceURL(ctx, w.adminURL, "", role)
			if err != nil {
				return err
			}
			if err := w.fake.AddSecretVersion("projects/"+projectID+"/secrets/"+string(service)+name, url); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeRoles creates the roles of the services and of their schemas, as the
// README does. All worlds on one server share the roles, and the server accepts
// only one role change at a time.
func (w *world) makeRoles(ctx context.Context) error {
	w.rehearsal.mu.Lock()
	defer w.rehearsal.mu.Unlock()
	script, err := os.ReadFile(rolesScript)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, w.adminURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, string(script))
	return err
}

// execute runs a job of Cloud Run: the image's binary with the job's arguments
// and environment.
func (w *world) execute(ctx context.Context, e fakegcp.Execution) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := w.command(ctx, e.Container)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", path.Base(cmd.Path), strings.Join(e.Container.Args, " "), err, output)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, path.Base(e.Job))
	return nil
}

// command returns the command of a Cloud Run container for this machine. Its
// environment is the one from Terraform plus the address of the local Pub/Sub.
func (w *world) command(ctx context.Context, c fakegcp.Container) *exec.Cmd {
	image, _, _ := strings.Cut(path.Base(c.Image), "@")
	cmd := exec.CommandContext(ctx, filepath.Join(w.rehearsal.binaries, image), c.Args...)
	cmd.Env = []string{"PUBSUB_EMULATOR_HOST=" + w.pubsub.Addr()}
	for name, value := range c.Environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	slices.Sort(cmd.Env)
	return cmd
}
