package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/services/catalog"
	"example.com/lockstep/services/video"
)

// part is the command with which this program starts itself again as a service. The service serves
// on a listener that it inherits. The command is not for people.
const part = "part"

// corsOrigin is the flag with the origins of web pages that may call. It is the same as the flag of the
// services.
const corsOrigin = "cors-origin"

// flushTime bounds the export of the last traces and metrics of a service.
const flushTime = 3 * time.Second

// runPart runs a service until SIGTERM, like the service's own command. It leaves out the parts
// that only a deployment needs, such as a limit of memory.
func runPart(ctx context.Context, c command.Call) (err error) {
	if len(c.Args) == 0 {
		return command.Usagef("%s is for this program alone", part)
	}
	name, vars := c.Args[0], command.NewEnvironment(c.Getenv)
	var limits serve.Options
	flags := flag.NewFlagSet(part, flag.ContinueOnError)
	flags.Var(&limits.Origins, corsOrigin, "")
	if err := command.ParseFlags(flags, c.Args[1:]); err != nil {
		return err
	}
	lis, err := process.Listener()
	if err != nil {
		return err
	}
	defer lis.Close()
	log := telemetry.Logger(c.Err, vars.Level("LOG_LEVEL", defaultLevel), name, "")
	telemetry.LogErrors(log)
	flush, err := telemetry.Setup(ctx, name, command.Version)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		_ = flush(ctx) // an error means that the collector of traces is away; the events have left
	}()
	if name == "video" {
		var cfg video.Config
		cfg.Reflection, cfg.Limits = true, limits
		cfg.ReadEnvironment(vars)
		if err := vars.Err(); err != nil {
			return err
		}
		return video.Serve(ctx, cfg, lis, log)
	}
	var cfg catalog.Config
	cfg.Reflection, cfg.Limits = true, limits
	cfg.ReadEnvironment(vars)
	if err := vars.Err(); err != nil {
		return err
	}
	return catalog.Serve(ctx, cfg, lis, log)
}

// makeServices prepares both services. serve starts them.
func (p pair) makeServices(all *parts) (err error) {
	if all.videoService, err = p.service(all, "video", all.video, "DATABASE_URL="+all.videoURL); err != nil {
		return err
	}
	all.catalogService, err = p.service(all, "catalog", all.catalog,
		"DATABASE_URL="+all.catalogURL, "VIDEO_SERVICE_ADDR="+all.video.Addr().String())
	return err
}

func (p pair) service(all *parts, name string, lis *net.TCPListener, vars ...string) (*process.Instance, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	// If a variable has two values, the last one counts. An empty value counts as unset. So the
	// empty values here hide variables that the terminal has for a deployment.
	env := append(os.Environ(), "K_SERVICE=", "CLOUD_RUN_JOB=", "CLOUD_RUN_WORKER_POOL=", "LISTEN_DATABASE_URL=", "PUBSUB_ENDPOINT=",
		"EVERYBODY_MAY_WRITE=", "AUTH_SERVICES=", "AUTH_SERVICE_AUDIENCE=", "AUTH_SERVICE_ISSUER=",
		"GOOGLE_CLOUD_PROJECT="+p.project, emulatorHost+"="+all.broker.at, "LOG_LEVEL="+p.level.String())
	if all.issuer == nil {
		env = append(env, "AUTH_ISSUER=", "AUTH_AUDIENCE=", "AUTH_TENANT_CLAIM=")
	} else {
		env = append(env, "AUTH_ISSUER="+all.issuer.URL(), "AUTH_AUDIENCE="+issuer.Audience, "AUTH_TENANT_CLAIM="+issuer.TenantClaim)
	}
	args := []string{part, name}
	if len(p.origins) > 0 {
		args = append(args, "--"+corsOrigin+"="+p.origins.String())
	}
	i, err := process.NewInstance(process.Command{Path: path, Args: args, Env: append(env, vars...), Log: p.stderr}, lis)
	if err == nil {
		all.atEnd(i.Close)
	}
	return i, err
}

// attend starts the service, waits until ctx ends, and then drains the service. It returns an error
// if the service's process ends before that.
func attend(ctx context.Context, i *process.Instance) error {
	if err := i.Start(); err != nil {
		return err
	}
	select {
	case err := <-i.Failed():
		return err
	case <-ctx.Done():
		return i.Stop()
	}
}
