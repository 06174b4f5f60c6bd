package aggregate

import (
	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
)

// CheckOwner returns an error unless the caller may read and change the rows of that user.
func CheckOwner(caller auth.Principal, user uuid.UUID) error {
	if caller.MayActFor(user) {
		return nil
	}
	return auth.Denied("This belongs to another user.")
}

// OwnUser returns the user of a new row if the request names no user. That user is the caller. For
// an admin, OwnUser returns uuid.Nil, because an admin acts for many users and has to name one.
func OwnUser(caller auth.Principal) uuid.UUID {
	if caller.Admin {
		return uuid.Nil
	}
	return caller.User
}
