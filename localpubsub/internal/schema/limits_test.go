package schema

import (
	"context"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

func TestSchemaLimits(t *testing.T) {
	t.Parallel()
	s, client := serveSchemas(t)
	first := createSchema(t, client, "video", proto3(""))
	for range maxRevisions - 1 {
		commitSchema(t, client, first.GetName(), proto3(""))
	}
	_, err := client.CommitSchema(t.Context(), &pubsubpb.CommitSchemaRequest{Name: first.GetName(), Schema: protobuf(proto3(""))})
	wantStatus(t, err, codes.ResourceExhausted, "", "20 revisions")
	_, err = client.RollbackSchema(t.Context(), &pubsubpb.RollbackSchemaRequest{Name: first.GetName(), RevisionId: first.GetRevisionId()})
	wantStatus(t, err, codes.ResourceExhausted, "", "20 revisions")
	// Deleted revisions free room, and the kept part of them is bounded.
	oldest := first
	for range maxRevisions + 5 {
		if _, err := client.DeleteSchemaRevision(t.Context(), &pubsubpb.DeleteSchemaRevisionRequest{Name: oldest.GetName() + "@" + oldest.GetRevisionId()}); err != nil {
			t.Fatal(err)
		}
		oldest = commitSchema(t, client, first.GetName(), proto3(""))
	}
	if n := len(s.history(first.GetName())); n != 2*maxRevisions {
		t.Errorf("%d revisions are remembered, want %d", n, 2*maxRevisions)
	}
	s.mu.Lock()
	held := s.stored
	s.stored = maxStored - revisionCost
	s.mu.Unlock()
	_, err = client.CreateSchema(t.Context(), &pubsubpb.CreateSchemaRequest{Parent: testProject, SchemaId: "another", Schema: protobuf(proto3(""))})
	wantStatus(t, err, codes.ResourceExhausted, "", "its limit is 16000000")
	s.mu.Lock()
	s.stored = held
	s.mu.Unlock()
	if err := client.DeleteSchema(t.Context(), &pubsubpb.DeleteSchemaRequest{Name: first.GetName()}); err != nil {
		t.Fatal(err)
	}
	if s.stored != 0 || len(s.byName) != 0 || len(s.projects) != 0 {
		t.Errorf("%d bytes, %d schemas and %d projects are left", s.stored, len(s.byName), len(s.projects))
	}
}

func TestSchemasOfAProject(t *testing.T) {
	t.Parallel()
	s, client := serveSchemas(t)
	createSchema(t, client, "first", proto3(""))
	s.mu.Lock()
	s.projects[testProject] = maxSchemas
	s.mu.Unlock()
	_, err := client.CreateSchema(t.Context(), &pubsubpb.CreateSchemaRequest{Parent: testProject, SchemaId: "second", Schema: protobuf(proto3(""))})
	wantStatus(t, err, codes.ResourceExhausted, "", "10000 schemas")
}

// TestSchemasAtOnce runs readers and writers at the same time for the race
// detector.
func TestSchemasAtOnce(t *testing.T) {
	t.Parallel()
	s, client := serveSchemas(t)
	name := createSchema(t, client, "video", proto3("string a = 1;")).GetName()
	settings := &pubsubpb.SchemaSettings{Schema: name, Encoding: pubsubpb.Encoding_BINARY}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Check(settings, []byte("\x0a\x01x")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range maxRevisions {
		added := commitSchema(t, client, name, proto3("string a = 1;"))
		if _, err := client.DeleteSchemaRevision(ctx, &pubsubpb.DeleteSchemaRevisionRequest{Name: name + "@" + added.GetRevisionId()}); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait()
}
