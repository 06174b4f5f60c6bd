package main

import (
	"fmt"
	"regexp"
	"slices"

	"example.com/lockstep/lab/fakegcp"
)

// resourceKinds map the resource of a grant to the name of the resource in grantsFile.
var resourceKinds = []struct {
	name *regexp.Regexp
	call string
}{
	{regexp.MustCompile(`^pubsub/.*/topics/([^/]+)$`), "pubsub topic"},
	{regexp.MustCompile(`^pubsub/.*/subscriptions/([^/]+)$`), "pubsub subscription"},
	{regexp.MustCompile(`^pubsub/.*/schemas/([^/]+)$`), "pubsub schema"},
	{regexp.MustCompile(`^secretmanager/.*/secrets/([^/]+)$`), "secret manager secret"},
	{regexp.MustCompile(`^run/.*/services/([^/]+)$`), "cloud run v2 service"},
	{regexp.MustCompile(`^run/.*/jobs/([^/]+)$`), "cloud run v2 job"},
	{regexp.MustCompile(`^artifactregistry/.*/repositories/([^/]+)$`), "artifact registry repository"},
	{regexp.MustCompile(`^iam/.*/serviceAccounts/([^/@]+)@[^/]+$`), "service account"},
	{regexp.MustCompile(`^cloudresourcemanager/projects/([^/]+)$`), "project"},
}

// asListed formats the grants that the fake has after an apply like the lines of grantsFile. If
// resourceKinds does not have the kind of a resource, the resource keeps its full name. Then its
// line is not in grantsFile, and the comparison fails.
func asListed(grants []fakegcp.Grant) []string {
	lines := make([]string, 0, len(grants))
	for _, g := range grants {
		about := g.Resource
		for _, kind := range resourceKinds {
			if found := kind.name.FindStringSubmatch(g.Resource); found != nil {
				about = kind.call + " " + found[1]
			}
		}
		if g.Condition != "" {
			about += " if " + g.Condition
		}
		lines = append(lines, short.Replace(fmt.Sprintf("%s  %s  %s", g.Member, g.Role, about)))
	}
	slices.Sort(lines)
	return lines
}
