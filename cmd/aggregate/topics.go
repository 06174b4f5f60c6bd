package main

import (
	"fmt"
	"strings"
)

// topicEdits are the places that name the topics and the subscriptions of the pair.
func (c *change) topicEdits() {
	a := c.aggregate
	topic, subscription := a.Topic(), a.Topic()+".catalog"
	c.edit("internal/local/broker/topology.go", func(s *source) {
		s.constant("VideoTopic", fmt.Sprintf("%sTopic = %q", a.Type(), topic))
		s.element("Topology", "[]string", a.Type()+"Topic")
		s.argument("Topology", "append", a.Type()+"Topic")
	})
	c.edit("services/video/serve.go", func(s *source) {
		s.element("Topics", "map[string]string", fmt.Sprintf(`%q: "projects/" + project + "/topics/%s"`, a.Name, topic))
	})
	c.pattern("services/video/cmd/video/main.go", `project of the topics [^\n]*`, func(m []string) string { return m[0] + ",\n                         " + topic })
	c.edit("services/catalog/serve.go", func(s *source) {
		s.constant("Subscription", fmt.Sprintf("%sSubscription = %q", a.Type(), subscription))
		s.element("Config.consumers", "map[string]string", fmt.Sprintf("%q: %sSubscription", a.Name+" consumer", a.Type()))
		s.element("Config.consumers", "[]string", a.Type()+"Subscription")
		s.before("Serve", "cfg.checks(", c.part("parts/reader_completion.tmpl"))
	})
	c.edit("services/catalog/cmd/catalog/main.go", func(s *source) {
		s.element("deadLetters", "[]string", "catalog."+a.Type()+"Subscription")
	})
	c.pattern("services/catalog/cmd/catalog/main.go", `project of the subscriptions `, func(m []string) string { return m[0] + subscription + ",\n                         " })
	c.edit("cmd/schema/events_test.go", func(s *source) {
		s.imports(fmt.Sprintf(`%seventsv1 "%s/proto/%s/events/v1"`, a.Name, c.module, a.Name))
		s.element("published", "map[string]proto.Message", fmt.Sprintf("%q: &%seventsv1.Event{}", topic, a.Name))
	})
	c.monitoring(subscription)
	c.terraform(topic)
}

// monitoring are the values of labels, and the subscriptions of two alerts.
func (c *change) monitoring(subscription string) {
	c.edit("internal/monitoring/metrics.go", func(s *source) {
		for label, value := range map[string]string{"subscription": subscription, "replica": c.aggregate.Name, "compared": c.aggregate.Name} {
			s.keyed(label, "Values", fmt.Sprintf("%q", value))
		}
	})
	c.pattern("internal/monitoring/alerts_process.go", `\(?\b(video(?:\|\w+)*)\)?(\\\\\.events)`, func(m []string) string {
		return "(" + m[1] + "|" + c.aggregate.Name + ")" + m[2]
	})
}

// terraform are the topics of the module, and its expected grants: those of videos, again.
func (c *change) terraform(topic string) {
	c.pattern("deploy/terraform/pubsub.tf", `topics\s*= toset\(\[[^\]]*`, func(m []string) string { return fmt.Sprintf("%s, %q", m[0], topic) })
	c.pattern("deploy/terraform/tests/pubsub.tftest.hcl", `== toset\(\["video\.events"[^\]]*`, func(m []string) string { return fmt.Sprintf("%s, %q", m[0], topic) })
	const grants = "deploy/terraform/tests/grants.txt"
	c.pattern(grants, `(?s).+`, func(m []string) string {
		again := strings.NewReplacer("video.events", topic, "video-events", c.aggregate.Name+"-events")
		var lines strings.Builder
		for line := range strings.Lines(m[0]) {
			lines.WriteString(line)
			if added := again.Replace(line); added != line {
				lines.WriteString(added)
			}
		}
		return sortedLines(lines.String())
	})
}
