package conformance

import (
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

func filters() area {
	source := page("subscription-message-filter")
	return area{"filters", []Behaviour{
		{Name: "a filter delivers the messages that match and no others", Source: source, try: filterMatches},
		{Name: "a filter tests an attribute's presence", Source: source, try: filterTestsPresence},
		{Name: "a filter with != passes other values and messages without the attribute", Source: source, try: filterNegates},
		{Name: "a filter combines conditions with AND, OR, NOT and parentheses", Source: source, try: filterCombines},
		{Name: "a filter compares prefixes", Source: source, try: filterComparesPrefixes},
		{Name: "a filter quotes keys with special characters", Source: source, try: filterQuotes},
		{Name: "a filter is case-sensitive", Source: source, try: filterIsCaseSensitive},
		{Name: "a malformed filter is refused", Source: source, try: filterIsParsed},
		{Name: "a filter has 256 bytes at most", Source: source, try: filterIsLimited},
		{Name: "filtered messages do not hold up their key", Source: source, try: filterPassesKeys},
		{Name: "filtered messages count as acknowledged", Source: source, try: filterAcknowledges},
	}}
}

// passes publishes one message for each element of all. The element lists the attributes of the
// message as key=value, separated by spaces. passes ends the trial unless exactly the messages in
// want pass the filter.
func (t *trial) passes(filter string, all, want []string) {
	topic := t.topic()
	s := t.stream(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, Filter: filter}))
	var messages []*pubsubpb.PubsubMessage
	for _, list := range all {
		m := &pubsubpb.PubsubMessage{Data: []byte(list), Attributes: make(map[string]string)}
		if list == "" {
			m.Data = []byte("none")
		}
		for pair := range strings.FieldsSeq(list) {
			key, value, _ := strings.Cut(pair, "=")
			m.Attributes[key] = value
		}
		messages = append(messages, m)
	}
	t.publish(topic, messages...)
	t.sameSet("what passes "+filter, data(s.next(len(want))), want)
	s.quiet(silence)
}

func filterMatches(t *trial) {
	t.passes(`attributes.kind = "a"`, []string{"kind=a", "kind=b", "other=a", "", "kind=a other=b"}, []string{"kind=a", "kind=a other=b"})
}

func filterTestsPresence(t *trial) {
	t.passes(`attributes:kind`, []string{"kind=a", "kind=", "other=a", ""}, []string{"kind=a", "kind="})
}

func filterNegates(t *trial) {
	t.passes(`attributes.kind != "a"`, []string{"kind=a", "kind=b", "other=a", ""}, []string{"kind=b", "other=a", "none"})
}

func filterCombines(t *trial) {
	all := []string{"x=1", "x=1 y=1", "x=1 z=1", "y=1", "y=1 z=1", ""}
	t.passes(`attributes:x AND NOT attributes:y`, all, []string{"x=1", "x=1 z=1"})
	t.passes(`attributes:x AND (attributes:y OR attributes:z)`, all, []string{"x=1 y=1", "x=1 z=1"})
	t.passes(`NOT (attributes:x OR attributes:y)`, all, []string{"none"})
}

func filterComparesPrefixes(t *trial) {
	all := []string{"region=europe-west1", "region=us-east1", "other=europe", ""}
	t.passes(`hasPrefix(attributes.region, "europe-")`, all, []string{"region=europe-west1"})
	t.passes(`NOT hasPrefix(attributes.region, "europe-")`, all, []string{"region=us-east1", "other=europe", "none"})
}

func filterQuotes(t *trial) {
	t.passes(`attributes."iana.org/language" = "en"`,
		[]string{"iana.org/language=en", "iana.org/language=de", ""}, []string{"iana.org/language=en"})
}

func filterIsCaseSensitive(t *trial) {
	t.passes(`attributes.kind = "a"`, []string{"kind=a", "kind=A", "Kind=a"}, []string{"kind=a"})
}

func filterIsParsed(t *trial) {
	topic := t.topic()
	for _, filter := range []string{
		`attributes.kind`, `attributes.kind =`, `attributes.kind = "a`, `attributes.kind == "a"`, `(attributes:kind`,
		`attributes:kind AND`, `hasSuffix(attributes.kind, "a")`, `data = "a"`,
	} {
		_, err := t.createSubscription(&pubsubpb.Subscription{Name: t.name("subscriptions"), Topic: topic, Filter: filter})
		t.code("filter "+filter, err, codes.InvalidArgument)
	}
}

func filterIsLimited(t *trial) {
	topic := t.topic()
	create := func(length int) error {
		const rest = `attributes.kind = ""`
		_, err := t.createSubscription(&pubsubpb.Subscription{
			Name: t.name("subscriptions"), Topic: topic, Filter: `attributes.kind = "` + strings.Repeat("a", length-len(rest)) + `"`,
		})
		return err
	}
	t.code("256 bytes", create(256), codes.OK)
	t.code("257 bytes", create(257), codes.InvalidArgument)
}

func filterPassesKeys(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, EnableMessageOrdering: true, Filter: `attributes.kind = "a"`}))
	var messages []*pubsubpb.PubsubMessage
	for _, kind := range []string{"b", "a", "b", "a", "b"} {
		m := attributed(kind, "kind", kind)
		m.OrderingKey = "key"
		messages = append(messages, m)
	}
	t.publish(topic, messages...)
	s.ack(s.want("a", "a")...)
	s.quiet(silence)
}

func filterAcknowledges(t *trial) {
	topic := t.topic()
	s := t.limited(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, Filter: `attributes.kind = "a"`}), 2)
	for range 5 {
		t.publish(topic, attributed("b", "kind", "b"))
	}
	t.publish(topic, attributed("a1", "kind", "a"), attributed("a2", "kind", "a"))
	s.wantSet("a1", "a2")
}
