package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
)

// releaseOrder has pairs of resources. Terraform must update the first resource of a pair before the
// second one. So Terraform updates schemas, then readers, then writers. An older reader that applies the
// events of a newer writer leaves rows incomplete. The last pair is for a first apply: catalog compares
// the retention of its subscriptions only once, at its start. Without the permission to view a
// subscription it gives this comparison up.
var releaseOrder = [][2]string{
	{"google_pubsub_schema.events", "module.catalog.google_cloud_run_v2_service.service"},
	{"module.catalog.google_cloud_run_v2_job.migrate", "module.catalog.google_cloud_run_v2_service.service"},
	{"module.catalog.google_cloud_run_v2_job.migrate", "module.catalog.google_cloud_run_v2_worker_pool.workers"},
	{"module.video.google_cloud_run_v2_job.migrate", "module.video.google_cloud_run_v2_service.service"},
	{"module.catalog.google_cloud_run_v2_service.service", "module.video.google_cloud_run_v2_service.service"},
	{"module.catalog.google_cloud_run_v2_worker_pool.workers", "module.video.google_cloud_run_v2_service.service"},
	{"module.video.google_cloud_run_v2_service.service", "module.video.google_cloud_run_v2_worker_pool.workers"},
	{"google_pubsub_subscription_iam_member.catalog_views_subscription", "module.catalog.google_cloud_run_v2_service.service"},
}

// dependency matches a line of `terraform graph`. The first resource on the line depends on the
// second.
var dependency = regexp.MustCompile(`(?m)^\s*"([^"]+)" -> "([^"]+)";$`)

// readersFirst checks that the module's dependencies enforce each pair of releaseOrder.
func readersFirst(ctx context.Context, m *module) (string, error) {
	graph, err := m.terraform(ctx, "graph")
	if err != nil {
		return "", err
	}
	needs := map[string][]string{}
	for _, line := range dependency.FindAllSubmatch(graph, -1) {
		needs[string(line[1])] = append(needs[string(line[1])], string(line[2]))
	}
	for _, pair := range releaseOrder {
		if !reaches(needs, pair[1], pair[0], map[string]bool{}) {
			return "", fmt.Errorf("nothing makes Terraform update %s before %s", pair[0], pair[1])
		}
	}
	return fmt.Sprintf("%d pairs: schemas, readers, writers, and a grant", len(releaseOrder)), nil
}

// reaches reports whether the resource from depends on the resource to, directly or through others.
func reaches(needs map[string][]string, from, to string, seen map[string]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(needs[from], func(next string) bool {
		return next == to || reaches(needs, next, to, seen)
	})
}
