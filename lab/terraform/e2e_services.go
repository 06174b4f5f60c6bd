package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/walk"
	"example.com/lockstep/pkg/eventing"
)

// drainTime is Cloud Run's time limit for a service after SIGTERM.
const drainTime = 10 * time.Second

// cloudRun is the parent of the module's services and jobs.
const cloudRun = "projects/" + projectID + "/locations/" + region

// walkThrough runs both services as Terraform configured them. It creates a video, changes it and
// reads it.
func (p *testProject) walkThrough(ctx context.Context) (seen string, err error) {
	video, err := p.serve(ctx, "video", nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, video.stop()) }()
	catalog, err := p.serve(ctx, "catalog", video)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, catalog.stop()) }()
	db, err := pgx.Connect(ctx, p.adminURL)
	if err != nil {
		return "", err
	}
	defer db.Close(context.WithoutCancel(ctx))
	token, err := p.users.Mint(eventing.DefaultTenant, walk.User)
	if err != nil {
		return "", err
	}
	steps, err := walk.Walk(ctx, "http://"+video.addr, "http://"+catalog.addr, token, db)
	if err != nil {
		return "", fmt.Errorf("%w\nvideo: %s\ncatalog: %s", err, video.process.Output(), catalog.process.Output())
	}
	if err := errors.Join(video.refusesStrangers(ctx), catalog.refusesStrangers(ctx)); err != nil {
		return "", err
	}
	names := make([]string, 0, len(steps))
	for _, s := range steps {
		names = append(names, s.Name)
	}
	done := strings.Join(names, ", ") + " as a user, each read from catalog's projection with its token; nothing without one"
	return done, p.operate(ctx, video)
}

// instance is a running service.
type instance struct {
	name, addr string
	process    *process.Process
}

// serve runs a service until stop is called. The service uses the issuer on this machine. In the
// environment of catalog, the address of the video service on this machine replaces the address in
// the cloud.
func (p *testProject) serve(ctx context.Context, name string, owner *instance) (*instance, error) {
	container, err := p.fake.Container(cloudRun + "/services/" + name)
	if err != nil {
		return nil, err
	}
	if err := p.localise(container.Environment, owner); err != nil {
		return nil, err
	}
	if err := p.signIn(container.Environment); err != nil {
		return nil, err
	}
	addr, err := freePort(container.Environment, "PORT")
	if err != nil {
		return nil, err
	}
	admin, err := freePort(container.Environment, "ADMIN_PORT")
	if err != nil {
		return nil, err
	}
	running, err := process.Start(p.command(context.WithoutCancel(ctx), container), syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	i := &instance{name: name, addr: addr, process: running}
	if err := walk.AwaitReady(ctx, name, "http://"+admin); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s", err, running.Output()), i.stop())
	}
	return i, nil
}

// localise expects that catalog has the address of the video service in the cloud, and replaces it
// by the address on this machine.
func (p *testProject) localise(environment map[string]string, owner *instance) error {
	const variable = "VIDEO_SERVICE_ADDR"
	given, has := environment[variable]
	if !has || owner == nil {
		return nil
	}
	service, err := p.fake.Resource("run", cloudRun+"/services/"+owner.name)
	if err != nil {
		return err
	}
	if want := strings.TrimPrefix(service["uri"].(string), "https://") + ":443"; given != want {
		return fmt.Errorf("%s = %q, but %s is at %q", variable, given, owner.name, want)
	}
	environment[variable] = owner.addr
	return nil
}

func (i *instance) stop() error {
	if err := i.process.Stop(syscall.SIGTERM, drainTime); err != nil {
		return fmt.Errorf("%s: %w", i.name, err)
	}
	return nil
}

// operate runs the operators' jobs. The jobs have nothing to do.
func (p *testProject) operate(ctx context.Context, video *instance) error {
	for _, name := range []string{"video-outbox", "video-drain", "catalog-dlq", "catalog-rebuild"} {
		container, err := p.fake.Container(cloudRun + "/jobs/" + name)
		if err != nil {
			return err
		}
		if err := p.localise(container.Environment, video); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		output, err := p.command(ctx, container).CombinedOutput()
		cancel()
		if err != nil {
			return fmt.Errorf("job %s: %w: %s", path.Base(name), err, output)
		}
	}
	return nil
}

// freePort sets the variable to a free port, and returns the address with this port. Another
// process may take the port before it is used.
func freePort(environment map[string]string, variable string) (addr string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	addr = listener.Addr().String()
	_, environment[variable], _ = net.SplitHostPort(addr)
	return addr, nil
}
