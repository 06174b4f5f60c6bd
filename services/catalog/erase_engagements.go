package catalog

import "strings"

// ownedEngagements returns the engagements among ids that belong to the user. Their ids begin with
// the id of the user.
func (e *Erasure) ownedEngagements(ids []string) (owned []string) {
	for _, id := range ids {
		user, _, _ := strings.Cut(id, ":")
		if parsed, invalid := parseID(user); invalid == nil && parsed == e.User {
			owned = append(owned, id)
		}
	}
	return owned
}
