package main

import (
	"fmt"
	"regexp"
	"slices"

	"example.com/lockstep/lab/fakegcp"
)

// nouns map a grant's resource to its name in grantsFile.
var nouns = []struct {
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

// asListed formats the final policies of the services as grantsFile does. A
// resource without a noun keeps its full name, and so equals no line of the
// file.
func asListed(grants []fakegcp.Grant) []string {
	lines := make([]string, 0, len(grants))
	for _, g := range grants {
		about := g.Resource
		for _, noun := range nouns {
			if found := noun.name.FindStringSubmatch(g.Resource); found != nil {
				about = noun.call + " " + found[1]
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
