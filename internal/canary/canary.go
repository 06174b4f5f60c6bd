// Package canary has the id and the tenant of the canary: a synthetic video whose events take the
// path of real events. Package video writes a version of the canary at an interval, and package
// catalog measures how long each version takes to become visible.
package canary

import (
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

const (
	// Tenant is the tenant of the canary. It owns nothing else. No user is in it, because the name
	// of a tenant in a token begins with a letter or a digit.
	Tenant = "_canary"
	// AggregateType is the aggregate type of every video.
	AggregateType = "video"
	// MaxSeconds is the longest interval between two versions, in seconds. The alerts need several
	// versions in ten minutes.
	MaxSeconds = 60
)

// Video is the id of the canary.
var Video = uuid.MustParse("0190a5d0-0000-7000-8000-0000000ca9a2")

// Is reports whether e is an event of the canary.
func Is(e eventing.Event) bool {
	return e.AggregateType == AggregateType && e.AggregateID == Video.String()
}
