package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"example.com/lockstep/internal/live"
	"example.com/lockstep/internal/serve"
)

// livePage adds the page of this process to health if c.Live is set. It returns the loop that makes
// the frames of the page.
func (c Config) livePage(health *serve.Health, log *slog.Logger) (loops []func(context.Context) error, err error) {
	if !c.Live {
		return nil, nil
	}
	if c.Admin == nil {
		return nil, errors.New("-live needs ADMIN_PORT: the page is not for callers of the API")
	}
	page, err := live.New(live.Options{Title: "catalog, live"})
	if err != nil {
		return nil, err
	}
	health.Page = page
	var consumer live.Consumer
	frames := func(ctx context.Context) error {
		return page.Run(ctx, func() live.Frame {
			if m, err := live.OwnSamples(); err == nil {
				consumer.See(time.Now(), m)
			} else {
				log.WarnContext(ctx, "the live page lacks its numbers", "error", err)
				consumer.Away(time.Now())
			}
			self := live.Part{Name: "catalog", State: "up", Detail: fmt.Sprintf("process %d, %.0f MB", os.Getpid(), consumer.Memory()/1e6)}
			return live.Frame{Stages: consumer.Stages(), Lag: consumer.Lag(), Parts: []live.Part{self}}
		})
	}
	return []func(context.Context) error{frames}, nil
}
