package video

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/services/video/aggregate"
)

// Video is the row in the store and also the JSON of REST. grpc.go and events.go turn it into
// messages. Each column has the name of its field. Times are in UTC, with microseconds.
type Video struct {
	ID              uuid.UUID  `json:"video_id" db:"video_id"`
	UploaderID      uuid.UUID  `json:"uploader_id"`
	Title           string     `json:"title"`
	Description     string     `json:"description"`
	DurationSeconds int64      `json:"duration_seconds"`
	PublishedAt     *time.Time `json:"published_at"`
	aggregate.Revision
}

// These are the most characters of a title, of a description, and of the reason of a deletion. The limits
// keep an event far under outbox.MaxPayloadBytes.
const (
	maxTitle       = 500
	maxDescription = 10_000
	maxReason      = 500
)

// fields are the names of the fields that callers can change. REST, field masks, events and the
// columns use these names.
var fields = []string{"title", "description", "duration_seconds", "published_at"}

// uploaderID is the name of the only field that is given at creation and never changes.
const uploaderID = "uploader_id"

// creation are the names of the fields of a new video.
var creation = append(slices.Clone(fields), uploaderID)

// value returns the value of the field with this name, in the type that REST and the row use.
func (v Video) value(name string) any {
	switch name {
	case "title":
		return v.Title
	case "description":
		return v.Description
	case "duration_seconds":
		return v.DurationSeconds
	case "published_at":
		return utc(v.PublishedAt)
	case uploaderID:
		return v.UploaderID
	}
	return nil
}

// values returns the values of the named fields by name. It leaves out unknown names, which the
// protocols report.
func (v Video) values(names []string) map[string]any {
	values := map[string]any{}
	for _, name := range names {
		if slices.Contains(creation, name) {
			values[name] = v.value(name)
		}
	}
	return values
}

// set sets the named fields of v to their values in to. It returns the names of the fields whose
// values differed.
func (v *Video) set(names []string, to Video) (changed []string) {
	for _, name := range names {
		if v.value(name) == to.value(name) {
			continue
		}
		changed = append(changed, name)
		switch name {
		case "title":
			v.Title = to.Title
		case "description":
			v.Description = to.Description
		case "duration_seconds":
			v.DurationSeconds = to.DurationSeconds
		case "published_at":
			v.PublishedAt = to.PublishedAt
		}
	}
	return changed
}

// violations returns the rules that the named fields of v violate.
func (v Video) violations(names []string) (found problem.Violations) {
	for _, name := range names {
		switch name {
		case "title":
			found.Line(name, v.Title, 1, maxTitle)
		case "description":
			found.Text(name, v.Description, 0, maxDescription, "\n\r\t")
		case "duration_seconds":
			found.Require(0 <= v.DurationSeconds && v.DurationSeconds <= aggregate.MaxSeconds, name,
				fmt.Sprintf("must lie between 0 and %d", aggregate.MaxSeconds))
		case "published_at":
			found.Require(v.PublishedAt == nil || inRange(*v.PublishedAt), name, "must lie between the years 1 and 9999")
		}
	}
	return found
}

// inRange reports whether both RFC 3339 and protobuf can express the time, in UTC.
func inRange(t time.Time) bool { return 1 <= t.Year() && t.Year() <= 9999 }

func utc(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC()
}
