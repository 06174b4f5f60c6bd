package video

import (
	"slices"

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

// named returns the fields with these names. It leaves out unknown names, which the protocols report.
func named(names []string) (found []field) {
	for _, name := range names {
		if i := slices.IndexFunc(fields, func(f field) bool { return f.name() == name }); i >= 0 {
			found = append(found, fields[i])
		}
	}
	return found
}

// set gives v the values that the named fields have in the video to, and returns the fields whose
// values differed.
func (v *Video) set(names []string, to Video) (changed []field) {
	for _, f := range named(names) {
		if f.set(v, to) {
			changed = append(changed, f)
		}
	}
	return changed
}

// values returns the values of the named fields of v, by name and in the types of REST.
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

// violations returns the rules that the named fields of v violate.
func (v Video) violations(names []string) (found problem.Violations) {
	for _, f := range named(names) {
		f.check(v, &found)
	}
	return found
}
