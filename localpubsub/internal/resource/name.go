// Package resource has the rules that all kinds of resources share. These are the rules for names,
// pages of lists, update masks and the bounds of configurations. The package also makes the gRPC
// errors for calls that break a rule.
package resource

import (
	"crypto/rand"
	"regexp"
	"strings"
)

// resourceID matches the valid ids of resources
// (https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names).
var resourceID = regexp.MustCompile(`^[A-Za-z][-A-Za-z0-9_.~+%]{2,254}$`)

// CheckName returns an error unless name has the form
// projects/PROJECT/COLLECTION/ID.
func CheckName(name, collection, field string) error {
	parts := strings.Split(name, "/")
	if len(parts) != 4 || parts[0] != "projects" || parts[1] == "" || parts[2] != collection {
		return Invalid(field, "%q is not of the form projects/PROJECT/%s/ID", name, collection)
	}
	if !resourceID.MatchString(parts[3]) || strings.HasPrefix(parts[3], "goog") {
		return Invalid(field, "%q: an id begins with a letter, has 3 to 255 letters, digits and -_.~+%% and does not begin with goog", parts[3])
	}
	return nil
}

// CheckProject returns an error unless name has the form projects/PROJECT.
func CheckProject(name, field string) error {
	project, ok := strings.CutPrefix(name, "projects/")
	if !ok || project == "" || strings.Contains(project, "/") {
		return Invalid(field, "%q is not of the form projects/PROJECT", name)
	}
	return nil
}

// Split returns the project and the id of a checked name.
func Split(name string) (project, id string) {
	parts := strings.Split(name, "/")
	return parts[1], parts[len(parts)-1]
}

// RandomName returns a random resource name in the given collection. The name is in the same
// project as the resource neighbour.
func RandomName(neighbour, collection string) string {
	project, _ := Split(neighbour)
	return "projects/" + project + "/" + collection + "/auto-" + strings.ToLower(rand.Text())
}
