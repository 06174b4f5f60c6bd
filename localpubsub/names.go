package localpubsub

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resourceID matches the valid ids of resources
// (https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names).
var resourceID = regexp.MustCompile(`^[A-Za-z][-A-Za-z0-9_.~+%]{2,254}$`)

// checkName requires the form projects/PROJECT/COLLECTION/ID.
func checkName(name, collection, field string) error {
	parts := strings.Split(name, "/")
	if len(parts) != 4 || parts[0] != "projects" || parts[1] == "" || parts[2] != collection {
		return invalid(field, "%q is not of the form projects/PROJECT/%s/ID", name, collection)
	}
	if !resourceID.MatchString(parts[3]) || strings.HasPrefix(parts[3], "goog") {
		return invalid(field, "%q: an id begins with a letter, has 3 to 255 letters, digits and -_.~+%% and does not begin with goog", parts[3])
	}
	return nil
}

// split returns the project and the id of a checked name.
func split(name string) (project, id string) {
	parts := strings.Split(name, "/")
	return parts[1], parts[len(parts)-1]
}

// randomName returns a random name in the project of another resource.
func randomName(neighbour, collection string) string {
	project, _ := split(neighbour)
	return "projects/" + project + "/" + collection + "/auto-" + strings.ToLower(rand.Text())
}

const (
	defaultPage = 100
	maxPage     = 1000
)

type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
}

// page returns one page of names: those after the token's, in order.
func page(names []string, req pageRequest) (some []string, next string, err error) {
	if req.GetPageSize() < 0 {
		return nil, "", invalid("page_size", "%d is negative", req.GetPageSize())
	}
	after, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
	if err != nil {
		return nil, "", invalid("page_token", "%q is none of this server's", req.GetPageToken())
	}
	slices.Sort(names)
	first, found := slices.BinarySearch(names, string(after))
	if found {
		first++
	}
	size := min(int(req.GetPageSize()), maxPage)
	if size == 0 {
		size = defaultPage
	}
	rest := names[first:]
	if len(rest) <= size {
		return rest, "", nil
	}
	return rest[:size], base64.RawURLEncoding.EncodeToString([]byte(rest[size-1])), nil
}

// invalid returns an error that names the field, also as google.rpc.BadRequest.
func invalid(field, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	s := status.New(codes.InvalidArgument, field+": "+why)
	detailed, err := s.WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: why}},
	})
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

func missing(name string) error {
	return status.Errorf(codes.NotFound, "Resource not found (resource=%s).", name)
}

func detached(name string) error {
	return status.Errorf(codes.FailedPrecondition, "The subscription %s is detached from its topic.", name)
}

func unavailable(why string) error { return status.Error(codes.Unavailable, why) }
