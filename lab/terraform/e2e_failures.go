package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// errStart is the error of each revision of the broken service.
var errStart = errors.New("the startup probe failed")

var (
	replace = regexp.MustCompile(`terraform apply (-replace=module\.)video(\.terraform_data\.migration)`)
	deletes = regexp.MustCompile(`gcloud run services delete `)
	refusal = "cannot destroy service without setting deletion_protection=false"
)

func (p *testProject) start(_ context.Context, service string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if path.Base(service) == p.broken {
		return errStart
	}
	return nil
}

// breaks makes the revisions of one service fail to start. If service is "", no service fails.
func (p *testProject) breaks(service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = service
}

// failedRelease deploys a revision of catalog that does not start. It expects three things. The
// earlier revision keeps serving. A further apply finds nothing to do. The command in the README
// repairs catalog.
func (p *testProject) failedRelease(ctx context.Context, v variables) error {
	readme, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	command := replace.FindSubmatch(readme)
	if command == nil || !deletes.Match(readme) {
		return errors.New("the README does not say what to do about a service that does not start")
	}
	before, err := p.readyRevision()
	if err != nil {
		return err
	}
	if err := p.appliedBroken(ctx, v, errStart.Error()); err != nil {
		return err
	}
	if err := p.keepsServing(ctx, v, before); err != nil {
		return err
	}
	if err := p.module.change(ctx, v, []string{"apply", "-auto-approve", string(command[1]) + "catalog" + string(command[2])}); err != nil {
		return err
	}
	ready, err := p.readyRevision()
	if err == nil && ready == before {
		err = fmt.Errorf("%s is ready still", ready)
	}
	p.did("a revision fails to start", path.Base(before)+" serves on, "+path.Base(ready)+" takes over after -replace")
	return err
}

// keepsServing expects that the revision from before the failed release is still ready. It also
// expects that a further plan does not change catalog.
func (p *testProject) keepsServing(ctx context.Context, v variables, before string) error {
	if ready, err := p.readyRevision(); err != nil || ready != before {
		return fmt.Errorf("after a revision that did not start, %q is ready, %w, want %q", ready, err, before)
	}
	changes, err := p.module.plan(ctx, v)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(changes, func(c change) bool { return c.Address == "module.catalog.google_cloud_run_v2_service.service" }) {
		return fmt.Errorf("a further plan tries again by itself, which the README denies: %v", changes)
	}
	return nil
}

// failedCreation makes the first apply of a catalog that does not start. Terraform then wants to
// replace catalog, but may not delete it. A person may delete it.
func (p *testProject) failedCreation(ctx context.Context, v variables) error {
	if err := p.deleteCatalog(ctx); err != nil {
		return err
	}
	if err := p.appliedBroken(ctx, v, errStart.Error()); err != nil {
		return err
	}
	if err := p.module.apply(ctx, v); err == nil || !strings.Contains(err.Error(), refusal) {
		return fmt.Errorf("an apply after a service that did not start: %w, want it refused: %s", err, refusal)
	}
	if err := p.deleteCatalog(ctx); err != nil {
		return err
	}
	if err := p.module.apply(ctx, v); err != nil {
		return err
	}
	p.did("a service fails to start", "Terraform may not replace it; deleted by hand, it is created again")
	return p.module.expectEmptyPlan(ctx, v)
}

// appliedBroken expects that an apply fails while catalog does not start.
func (p *testProject) appliedBroken(ctx context.Context, v variables, says string) error {
	p.breaks("catalog")
	defer p.breaks("")
	if err := p.module.apply(ctx, v); err == nil || !strings.Contains(err.Error(), says) {
		return fmt.Errorf("an apply while catalog does not start: %w, want %q", err, says)
	}
	return nil
}

func (p *testProject) readyRevision() (string, error) {
	service, err := p.fake.Resource("run", cloudRun+"/services/catalog")
	if err != nil {
		return "", err
	}
	ready, _ := service["latestReadyRevision"].(string)
	return ready, nil
}

// deleteCatalog sends the request of `gcloud run services delete catalog`.
func (p *testProject) deleteCatalog(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodDelete, p.fake.URL()+"/run/v2/"+cloudRun+"/services/catalog", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("delete catalog: %s", answer.Status)
	}
	return nil
}
