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

	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/lab/fakegcp"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/migrations"
)

// The project is the one in the mocked tests, so that the grants can be compared.
const (
	projectID     = "acme-test"
	projectNumber = "123456789012"
	region        = "europe-west1"
	readme        = moduleDir + "/README.md"
	rolesScript   = moduleDir + "/roles.sql"
)

// A testProject is a simulated Google Cloud project. It has a stand-in for the control plane, a
// Pub/Sub, a database, an issuer of users' tokens, and a copy of the module.
type testProject struct {
	name     string
	run      *e2eRun
	pubsub   *localpubsub.Server
	fake     *fakegcp.Server
	users    *issuer.Issuer
	module   *module
	adminURL string // of the project's own database

	mu     sync.Mutex
	jobs   []string // that have run
	broken string   // the service whose revisions do not start
}

// ran returns the jobs that have run since the last call, sorted.
func (p *testProject) ran() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	jobs := slices.Sorted(slices.Values(p.jobs))
	p.jobs = nil
	return jobs
}

var (
	enabling = regexp.MustCompile(`gcloud services enable ((?:[a-z.]+|\\\n|\s)+)`)
	first    = regexp.MustCompile(`terraform apply (-target=(?:.*\\\n)*.*)`)
	target   = regexp.MustCompile(`-target=(\S+)`)
)

// newProject returns a new project in which only the services that the README enables are enabled.
func (r *e2eRun) newProject(ctx context.Context, name string) (p *testProject, err error) {
	p = &testProject{name: name, run: r}
	text, err := os.ReadFile(readme)
	if err != nil {
		return p, err
	}
	enabled := enabling.FindSubmatch(text)
	if enabled == nil {
		return p, fmt.Errorf("%s enables no services", readme)
	}
	if p.pubsub, err = localpubsub.Start(localpubsub.Options{}); err != nil {
		return p, err
	}
	p.fake, err = fakegcp.Start(fakegcp.Options{
		Project: projectID, Number: projectNumber, PubSub: "http://" + p.pubsub.Addr(), Execute: p.execute, Start: p.start,
		Enabled: strings.Fields(strings.ReplaceAll(string(enabled[1]), "\\\n", " ")),
	})
	if err != nil {
		return p, err
	}
	if p.users, err = startIssuer(); err != nil {
		return p, err
	}
	if p.module, err = newModule(r.plugins); err != nil {
		return p, err
	}
	p.module.environment = append(p.module.environment, p.fake.Environment()...)
	err = p.createDatabase(ctx)
	return p, err
}

func (p *testProject) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.run.postgres.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{p.name}.Sanitize()); err != nil {
		return err
	}
	// The superuser has access to all databases.
	p.adminURL, err = postgres.ServiceURL(ctx, p.run.postgres.URL(), p.name, "postgres")
	return err
}

func (p *testProject) close() error {
	var errs []error
	if p.module != nil {
		errs = append(errs, p.module.remove())
	}
	if p.users != nil {
		errs = append(errs, p.users.Close())
	}
	if p.fake != nil {
		errs = append(errs, p.fake.Close())
	}
	if p.pubsub != nil {
		errs = append(errs, p.pubsub.Close())
	}
	return errors.Join(errs...)
}

func (p *testProject) did(step, seen string) { p.run.did(p.name+": "+step, seen) }

// variables returns the values for a project that has everything, like the project in the mocked
// test of the grants. In addition, the project has instances that grant nothing.
func (p *testProject) variables(digest string) variables {
	image := func(service string) string {
		return fmt.Sprintf("%s-docker.pkg.dev/%s/lockstep/%s@sha256:%s", region, projectID, service, strings.Repeat(digest, 64))
	}
	return variables{
		"project_id": projectID, "project_number": projectNumber, "region": region,
		"auth_issuer": authIssuer, "auth_audience": authAudience,
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
		"metrics_sidecar_image": "us-docker.pkg.dev/google/collector@sha256:" + strings.Repeat("2", 64),
	}
}

// prepare applies the resources that the README of the module's version applies first. Then it fills the
// secrets.
func (p *testProject) prepare(ctx context.Context, v variables) error {
	text, err := os.ReadFile(p.module.path(path.Base(readme)))
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
	if err := p.module.apply(ctx, v, targets...); err != nil {
		return err
	}
	// The README reads this output before it creates anything else.
	connection, err := p.module.terraform(ctx, "output", "-raw", "sql_connection")
	if err != nil || !bytes.HasSuffix(connection, []byte(":lockstep")) {
		return fmt.Errorf("terraform output -raw sql_connection: %q, %w, want the instance's", connection, err)
	}
	p.did("apply what comes first", strings.Join(targets, " "))
	if err := p.makeRoles(ctx); err != nil {
		return err
	}
	for _, service := range []migrations.Service{migrations.Video, migrations.Catalog} {
		for name, role := range map[string]string{"-database-url": service.Role(), "-admin-database-url": string(service) + "_owner"} {
			url, err := postgres.ServiceURL(ctx, p.adminURL, "", role)
			if err != nil {
				return err
			}
			if err := p.fake.AddSecretVersion("projects/"+projectID+"/secrets/"+string(service)+name, url); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeRoles creates the roles of the services and of the owners of their schemas, as the README
// does. All projects on one database server share the roles, and the server accepts only one change
// of a role at a time.
func (p *testProject) makeRoles(ctx context.Context) error {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	script, err := os.ReadFile(rolesScript)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, p.adminURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, string(script))
	return err
}

// execute runs a job of Cloud Run. It runs the binary for the image with the job's arguments and
// environment.
func (p *testProject) execute(ctx context.Context, e fakegcp.Execution) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := p.command(ctx, e.Container)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", path.Base(cmd.Path), strings.Join(e.Container.Args, " "), err, output)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs = append(p.jobs, path.Base(e.Job))
	return nil
}

// command returns the command that runs a Cloud Run container on this machine. Its environment is
// the one from Terraform, plus the address of the local Pub/Sub.
func (p *testProject) command(ctx context.Context, c fakegcp.Container) *exec.Cmd {
	image, _, _ := strings.Cut(path.Base(c.Image), "@")
	cmd := exec.CommandContext(ctx, filepath.Join(p.run.binaries, image), c.Args...)
	cmd.Env = []string{"PUBSUB_EMULATOR_HOST=" + p.pubsub.Addr()}
	for name, value := range c.Environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	slices.Sort(cmd.Env)
	return cmd
}
