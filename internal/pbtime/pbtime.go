// Package pbtime carries times that may be missing into protobuf and back: nil is
// an unset field, and an unset field is nil.
package pbtime

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Proto is the field for t.
func Proto(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// Time is the time in ts, in UTC.
func Time(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	t := ts.AsTime()
	return &t
}
