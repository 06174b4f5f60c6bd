package main

import (
	"fmt"
	"regexp"
	"slices"

	"example.com/lockstep/lab/fakegcp"
)

// resourceKinds map a grant's resource to its name in grantsFile.
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

// asListed formats the grants that the fake services hold after an apply like
// the lines of grantsFile. A resource of a kind that resourceKinds lacks keeps
// its full name, so its line is not in the file and the comparison fails.
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
