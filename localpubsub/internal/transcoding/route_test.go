package transcoding

import (
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
)

// TestEveryUnaryMethodHasARoute compares the routes with the services.
func TestEveryUnaryMethodHasARoute(t *testing.T) {
	t.Parallel()
	routed := make(map[string]int)
	for _, routes := range annotatedRoutes() {
		for _, r := range routes {
			routed[r.method]++
		}
	}
	want := map[string]int{"StreamingPull": 0, "GetIamPolicy": 4, "SetIamPolicy": 4, "TestIamPermissions": 4}
	for _, service := range []grpc.ServiceDesc{
		pubsubpb.Publisher_ServiceDesc, pubsubpb.Subscriber_ServiceDesc, pubsubpb.SchemaService_ServiceDesc, iampb.IAMPolicy_ServiceDesc,
	} {
		for _, method := range service.Methods {
			n, ok := want[method.MethodName]
			if !ok {
				n = 1
			}
			if got := routed["/"+service.ServiceName+"/"+method.MethodName]; got != n {
				t.Errorf("%s has %d routes, want %d", method.MethodName, got, n)
			}
		}
	}
}

func TestFindKeepsEscapedSlashes(t *testing.T) {
	t.Parallel()
	_, values, err := annotatedRoutes().find("GET", "/v1/projects/example.com:acme/topics/a%2Fb%2fc%7E")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"projects/example.com:acme/topics/a%2Fb%2fc~"}, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}
