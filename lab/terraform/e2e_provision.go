package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"example.com/lockstep/internal/local/broker"
)

// differences are the fields that intentionally differ between the resources of Terraform and the
// resources of cmd/dev provision.
var differences = []struct {
	of     protoreflect.FullName
	field  protoreflect.Name
	reason string
}{
	{"google.pubsub.v1.Topic", "message_storage_policy", "a local broker is in no region"},
	{"google.pubsub.v1.Topic", "labels", "Terraform marks what it has made"},
	{"google.pubsub.v1.Subscription", "labels", "Terraform marks what it has made"},
}

// sameAsProvisioned compares the topics, subscriptions and schemas of Terraform with those that
// cmd/dev provision makes. It makes them in another project of the same Pub/Sub.
func (p *testProject) sameAsProvisioned(ctx context.Context) (string, error) {
	const provisioned = "provisioned"
	if _, err := broker.Provision(ctx, p.pubsub.Addr(), provisioned); err != nil {
		return "", err
	}
	conn, err := p.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	applied, err := described(ctx, conn, projectID)
	if err != nil {
		return "", err
	}
	local, err := described(ctx, conn, provisioned)
	if err != nil {
		return "", err
	}
	var reasons []string
	for _, d := range differences {
		reasons = append(reasons, fmt.Sprintf("%s (%s)", d.field, d.reason))
	}
	seen := fmt.Sprintf("the same %d topics, subscriptions and schemas, but for %s", len(local), strings.Join(slices.Compact(reasons), ", "))
	return seen, sameResources(applied, local)
}

// described returns the Pub/Sub resources of a project. The key of a resource is its name without
// the project.
func described(ctx context.Context, conn *grpc.ClientConn, project string) (map[string]proto.Message, error) {
	project = "projects/" + project
	topics, err := pubsubpb.NewPublisherClient(conn).ListTopics(ctx, &pubsubpb.ListTopicsRequest{Project: project})
	if err != nil {
		return nil, err
	}
	subscriptions, err := pubsubpb.NewSubscriberClient(conn).ListSubscriptions(ctx, &pubsubpb.ListSubscriptionsRequest{Project: project})
	if err != nil {
		return nil, err
	}
	all := map[string]proto.Message{}
	for _, t := range topics.GetTopics() {
		all[strings.TrimPrefix(t.GetName(), project)] = withoutProject(t, project)
	}
	for _, s := range subscriptions.GetSubscriptions() {
		all[strings.TrimPrefix(s.GetName(), project)] = withoutProject(s, project)
	}
	full := &pubsubpb.ListSchemasRequest{Parent: project, View: pubsubpb.SchemaView_FULL}
	schemas, err := pubsubpb.NewSchemaServiceClient(conn).ListSchemas(ctx, full)
	for _, s := range schemas.GetSchemas() {
		s.RevisionId, s.RevisionCreateTime = "", nil
		all[strings.TrimPrefix(s.GetName(), project)] = withoutProject(s, project)
	}
	return all, err
}

// withoutProject returns m without the project in all names.
func withoutProject(m proto.Message, project string) proto.Message {
	text := strings.ReplaceAll(protojson.Format(m), project+"/", "")
	bare := m.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal([]byte(text), bare); err != nil {
		return m // with the project in its names: the comparison reports the difference
	}
	return bare
}

// sameResources compares the resources field by field. If an intended difference does not occur,
// this is an error, too.
func sameResources(applied, local map[string]proto.Message) error {
	var wrong []error
	differ := make([]bool, len(differences))
	for name, a := range applied {
		l, found := local[name]
		if !found {
			wrong = append(wrong, fmt.Errorf("%s is not made by cmd/dev provision", name))
			continue
		}
		for i, d := range differences {
			field := a.ProtoReflect().Descriptor().Fields().ByName(d.field)
			if a.ProtoReflect().Descriptor().FullName() != d.of {
				continue
			}
			differ[i] = differ[i] || a.ProtoReflect().Has(field) != l.ProtoReflect().Has(field)
			a.ProtoReflect().Clear(field)
			l.ProtoReflect().Clear(field)
		}
		if !proto.Equal(a, l) {
			wrong = append(wrong, fmt.Errorf("%s: Terraform makes\n  %v\ncmd/dev provision makes\n  %v", name, a, l))
		}
	}
	for name := range local {
		if _, found := applied[name]; !found {
			wrong = append(wrong, fmt.Errorf("%s is not made by Terraform", name))
		}
	}
	for i, d := range differences {
		if !differ[i] {
			wrong = append(wrong, fmt.Errorf("%s of a %s does not differ any more: take it off the list", d.field, d.of.Name()))
		}
	}
	return errors.Join(wrong...)
}
