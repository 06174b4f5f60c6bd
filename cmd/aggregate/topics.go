package main

import (
	"fmt"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
	"example.com/lockstep/internal/topics"
)

// topicEdits adds the topic to internal/topics, the list of all topics. It also adds the topic's
// name to the code that handles each topic by its name.
func (c *change) topicEdits() {
	a := c.aggregate
	const schemas, serve = "cmd/schema/events_test.go", "services/catalog/serve.go"
	c.inside("internal/topics/topics.go", "const (", fmt.Sprintf("%s = %q", a.Type(), a.Topic()))
	c.inside("internal/topics/topics.go", "var All = []Topic{", fmt.Sprintf("{Name: %s, Aggregate: %q},", a.Type(), a.Name))
	c.inside(serve, "var (", fmt.Sprintf("%sSubscription = topics.Subscription(topics.%[1]s, topics.Catalog)", a.Type()))
	c.inside(serve, "for loop, subscription := range map[string]string{", fmt.Sprintf("%q: %sSubscription,", a.Name+" consumer", a.Type()))
	c.inside(serve, "for rows, complete := range map[string]func(context.Context, func()) error{",
		fmt.Sprintf("%q: p.%s.Complete,", a.Plural(), a.Plural()))
	c.inside(schemas, "import (", fmt.Sprintf(`%seventsv1 "%s/proto/%s/events/v1"`, a.Name, c.module, a.Name))
	c.inside(schemas, "var published = map[string]proto.Message{", fmt.Sprintf("topics.%s: &%seventsv1.Event{},", a.Type(), a.Name))
	c.terraform()
}

// terraform adds the expected grants of the new topic to the test of the Terraform module. The new
// grants are copies of the grants of the video topic.
func (c *change) terraform() {
	c.pattern("deploy/terraform/tests/grants.txt", `(?s).+`, func(m []string) string {
		// The name of another topic may end in the name of the video topic. The space before the
		// name keeps such a topic from matching.
		again := strings.NewReplacer(" "+topics.Video, " "+c.aggregate.Topic(), " "+schemaName(topics.Video), " "+schemaName(c.aggregate.Topic()))
		var lines strings.Builder
		for line := range strings.Lines(m[0]) {
			lines.WriteString(line)
			if added := again.Replace(line); added != line {
				lines.WriteString(added)
			}
		}
		return repo.SortedLines(lines.String())
	})
}

// schemaName is the name of a topic's schema.
func schemaName(topic string) string { return strings.ReplaceAll(topic, ".", "-") }
