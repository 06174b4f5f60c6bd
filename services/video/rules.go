package video

import (
	"slices"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
)

// uploaderID is the name of the only field that is given at creation and never changes.
const uploaderID = "uploader_id"

// creation are the names of the fields of a new video.
var creation = append(names(fields), uploaderID)

func names(all []field) (names []string) {
	for _, f := range all {
		names = append(names, f.name())
	}
	return names
}

// named are the fields with these names. Other names are left out; the protocols report
// them.
func named(names []string) (found []field) {
	for _, name := range names {
		if i := slices.IndexFunc(fields, func(f field) bool { return f.name() == name }); i >= 0 {
			found = append(found, fields[i])
		}
	}
	return found
}

// set gives v the named fields of to, and returns those that differed.
func (v *Video) set(names []string, to Video) (changed []field) {
	for _, f := range named(names) {
		if f.set(v, to) {
			changed = append(changed, f)
		}
	}
	return changed
}

// values are the named fields of v by their names, as REST writes them.
func (v Video) values(names []string) map[string]any {
	values := map[string]any{}
	for _, f := range named(names) {
		values[f.name()] = f.value(v)
	}
	if slices.Contains(names, uploaderID) {
		values[uploaderID] = v.UploaderID
	}
	return values
}

// violations are the violations of the rules by the named fields of v.
func (v Video) violations(names []string) (found problem.Violations) {
	for _, f := range named(names) {
		f.check(v, &found)
	}
	found.Require(v.UploaderID != uuid.Nil || !slices.Contains(names, uploaderID), uploaderID, "must be a UUID")
	return found
}
