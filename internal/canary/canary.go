// Package canary names the synthetic video that measures the path of real events. Package
// video writes a version of it at an interval, and package catalog measures how long each
// version takes to become visible.
package canary

import (
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

const (
	// Tenant owns the video and nothing else. No user is in it: the name of a tenant in a
	// token begins with a letter or a digit.
	Tenant = "_canary"
	// AggregateType is that of every video.
	AggregateType = "video"
	// MaxSeconds is the longest interval in seconds: the alerts need several versions in ten
	// minutes.
	MaxSeconds = 60
)

// Video is the id of the video.
var Video = uuid.MustParse("0190a5d0-0000-7000-8000-0000000ca9a2")

// Is reports whether e is of the video.
func Is(e eventing.Event) bool {
	return e.AggregateType == AggregateType && e.AggregateID == Video.String()
}
