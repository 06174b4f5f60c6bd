package aggregate

import (
	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
)

// CheckOwner returns an error unless the caller may read and change what belongs to that user.
func CheckOwner(caller auth.Principal, user uuid.UUID) error {
	if caller.MayActFor(user) {
		return nil
	}
	return auth.Denied("This belongs to another user.")
}

// OwnUser returns the user that a new row belongs to if the request names none, which is the
// caller. It returns uuid.Nil for an admin, because an admin acts for many users and has to name
// one.
func OwnUser(caller auth.Principal) uuid.UUID {
	if caller.Admin {
		return uuid.Nil
	}
	return caller.User
}
