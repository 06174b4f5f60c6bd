package video

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	videov1 "example.com/lockstep/proto/video/v1"
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

// The limits keep an event far under outbox.MaxPayloadBytes.
const (
	maxTitle       = 500
	maxDescription = 10_000
	maxReason      = 500
	// maxMask bounds the number of names in a field mask; a name may be repeated.
	maxMask = 8
)

// restBody has the fields that a caller may write over REST. An absent field stays unchanged, and
// null clears a field.
type restBody struct {
	UploaderID      rest.Optional[string] `json:"uploader_id"`
	Title           rest.Optional[string] `json:"title"`
	Description     rest.Optional[string] `json:"description"`
	DurationSeconds rest.Optional[int64]  `json:"duration_seconds"`
	PublishedAt     rest.Optional[string] `json:"published_at"`
}

// grpcBody has the fields that a caller may write over gRPC. The requests of CreateVideo
// and UpdateVideo both have them.
type grpcBody interface {
	GetTitle() string
	GetDescription() string
	GetDurationSeconds() int64
	GetPublishedAt() *timestamppb.Timestamp
}

// A field describes one field that callers can change: its name, its rules, and its form in REST,
// in gRPC, in events and in the row. To add a field, add a type to fields and a member to Video,
// restBody and grpcBody. docs/adapt.md has the places outside this file.
type field interface {
	name() string   // the name in REST, in field masks, in events and of the column
	nullable() bool // whether null clears the field over REST
	// value returns the field's value, in the type that REST and the row have.
	value(v Video) any
	// set gives v the value that the field has in the video to, and reports whether the two values
	// differed.
	set(v *Video, to Video) (differed bool)
	// check adds to found the rules that the field of v violates.
	check(v Video, found *problem.Violations)
	// fromREST and fromGRPC read the field from a protocol into v.
	fromREST(b restBody, v *Video, found *problem.Violations) (set, null bool)
	fromGRPC(b grpcBody, v *Video, found *problem.Violations)
	// message, created and updated write the field of v into a message. cleared reports whether the
	// event must name the field as cleared.
	message(v Video, m *videov1.Video)
	created(v Video, e *eventsv1.VideoCreated)
	updated(v Video, e *eventsv1.VideoUpdated) (cleared bool)
}

// fields has every field except the uploader, which is given at creation only.
var fields = []field{title{}, description{}, durationSeconds{}, publishedAt{}}

type title struct{}

func (title) name() string                                         { return "title" }
func (title) nullable() bool                                       { return false }
func (title) value(v Video) any                                    { return v.Title }
func (title) set(v *Video, to Video) bool                          { return assign(&v.Title, to.Title) }
func (f title) check(v Video, found *problem.Violations)           { found.Line(f.name(), v.Title, 1, maxTitle) }
func (title) fromGRPC(b grpcBody, v *Video, _ *problem.Violations) { v.Title = b.GetTitle() }
func (title) message(v Video, m *videov1.Video)                    { m.Title = v.Title }
func (title) created(v Video, e *eventsv1.VideoCreated)            { e.Title = v.Title }
func (title) updated(v Video, e *eventsv1.VideoUpdated) bool       { e.Title = &v.Title; return false }
func (title) fromREST(b restBody, v *Video, _ *problem.Violations) (set, null bool) {
	return read(b.Title, &v.Title)
}

type description struct{}

func (description) name() string                { return "description" }
func (description) nullable() bool              { return true }
func (description) value(v Video) any           { return v.Description }
func (description) set(v *Video, to Video) bool { return assign(&v.Description, to.Description) }
func (description) fromGRPC(b grpcBody, v *Video, _ *problem.Violations) {
	v.Description = b.GetDescription()
}
func (description) message(v Video, m *videov1.Video)         { m.Description = v.Description }
func (description) created(v Video, e *eventsv1.VideoCreated) { e.Description = v.Description }
func (description) updated(v Video, e *eventsv1.VideoUpdated) bool {
	e.Description = &v.Description
	return v.Description == ""
}

func (f description) check(v Video, found *problem.Violations) {
	found.Text(f.name(), v.Description, 0, maxDescription, "\n\r\t")
}

func (description) fromREST(b restBody, v *Video, _ *problem.Violations) (set, null bool) {
	return read(b.Description, &v.Description)
}

type durationSeconds struct{}

func (durationSeconds) name() string      { return "duration_seconds" }
func (durationSeconds) nullable() bool    { return false }
func (durationSeconds) value(v Video) any { return v.DurationSeconds }
func (durationSeconds) set(v *Video, to Video) bool {
	return assign(&v.DurationSeconds, to.DurationSeconds)
}
func (durationSeconds) fromGRPC(b grpcBody, v *Video, _ *problem.Violations) {
	v.DurationSeconds = b.GetDurationSeconds()
}
func (durationSeconds) message(v Video, m *videov1.Video) { m.DurationSeconds = v.DurationSeconds }
func (durationSeconds) created(v Video, e *eventsv1.VideoCreated) {
	e.DurationSeconds = v.DurationSeconds
}
func (durationSeconds) updated(v Video, e *eventsv1.VideoUpdated) bool {
	e.DurationSeconds = &v.DurationSeconds
	return false
}

func (f durationSeconds) check(v Video, found *problem.Violations) {
	found.Require(0 <= v.DurationSeconds && v.DurationSeconds <= aggregate.MaxSeconds, f.name(),
		fmt.Sprintf("must lie between 0 and %d", aggregate.MaxSeconds))
}

func (durationSeconds) fromREST(b restBody, v *Video, _ *problem.Violations) (set, null bool) {
	return read(b.DurationSeconds, &v.DurationSeconds)
}

type publishedAt struct{}

func (publishedAt) name() string   { return "published_at" }
func (publishedAt) nullable() bool { return true }
func (publishedAt) message(v Video, m *videov1.Video) {
	m.PublishedAt = aggregate.Timestamp(v.PublishedAt)
}
func (publishedAt) created(v Video, e *eventsv1.VideoCreated) {
	e.PublishedAt = aggregate.Timestamp(v.PublishedAt)
}
func (publishedAt) updated(v Video, e *eventsv1.VideoUpdated) bool {
	e.PublishedAt = aggregate.Timestamp(v.PublishedAt)
	return v.PublishedAt == nil
}

func (publishedAt) value(v Video) any {
	if v.PublishedAt == nil {
		return nil
	}
	return *v.PublishedAt
}

func (publishedAt) set(v *Video, to Video) bool {
	before := v.PublishedAt
	v.PublishedAt = to.PublishedAt
	same := before == to.PublishedAt || before != nil && to.PublishedAt != nil && before.Equal(*to.PublishedAt)
	return !same
}

// check accepts the times that both RFC 3339 and protobuf can express, in UTC.
func (f publishedAt) check(v Video, found *problem.Violations) {
	found.Require(v.PublishedAt == nil || v.PublishedAt.Year() >= 1 && v.PublishedAt.Year() <= 9999, f.name(),
		"must lie between the years 1 and 9999")
}

func (f publishedAt) fromREST(b restBody, v *Video, found *problem.Violations) (set, null bool) {
	if b.PublishedAt.Set && !b.PublishedAt.Null {
		t, ok := rest.ParseTime(b.PublishedAt.Value)
		found.Require(ok, f.name(), "must be a time as in RFC 3339")
		v.PublishedAt = new(aggregate.Micros(t))
	}
	return b.PublishedAt.Set, b.PublishedAt.Null
}

func (f publishedAt) fromGRPC(b grpcBody, v *Video, found *problem.Violations) {
	if t := b.GetPublishedAt(); t != nil {
		found.Require(t.IsValid(), f.name(), "must be a valid timestamp")
		v.PublishedAt = new(aggregate.Micros(t.AsTime()))
	}
}

// assign sets at to a value, and reports whether they differed.
func assign[T comparable](at *T, to T) (differed bool) {
	differed = *at != to
	*at = to
	return differed
}

// read stores a member of a body in *to. set says that the body has the member, and null says that
// the member is null.
func read[T any](o rest.Optional[T], to *T) (set, null bool) {
	*to = o.Value
	return o.Set, o.Null
}
