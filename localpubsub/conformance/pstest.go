package conformance

// Pstest returns the differences between pstest and the documentation. pstest is the test server in
// the Go client's module cloud.google.com/go/pubsub/v2 v2.8.1.
func Pstest() map[string]Departure {
	return together(pstestResources(), pstestPublishing(), pstestStreams(), pstestDelivery(), pstestReplay(), pstestSchemas())
}

func pstestResources() map[string]Departure {
	return together(
		because(Departure{Why: "it leaves the state unspecified"}, "a new topic is active"),
		because(Departure{Why: "it takes any name"}, "a malformed topic name is refused", "a malformed subscription name is refused"),
		because(Departure{Why: "it lists the subscriptions of a topic that does not exist: none"}, "a missing topic is not found"),
		because(Departure{Why: "it changes nothing and returns no error"},
			"a topic update without a mask is refused", "a subscription update without a mask is refused"),
		because(Departure{Why: "it lists those of the deleted topic"}, "a topic created again under a deleted name has no subscriptions"),
		because(Departure{Why: "it wants a name"}, "a subscription created without a name is given one"),
		because(Departure{Why: "it fills in nothing"}, "a subscription has the documented defaults",
			"a retry policy has the documented defaults", "the number of attempts is 5 where none is given"),
		because(Departure{Why: "it takes 9 s, and refuses others with UNKNOWN, which clients retry"},
			"the acknowledgement deadline is between 10 and 600 seconds"),
		because(Departure{Why: "it refuses more than 7 days, which was the limit once"}, "retention is between 10 minutes and 31 days"),
		because(Departure{Why: "it takes any"}, "a subscription expires after a day at least, or never",
			"a subscription update is held to the limits of a creation", "a backoff is 600 seconds at most",
			"the number of attempts is between 5 and 100"),
		because(Departure{Why: "the subscription shows as attached and keeps its backlog"},
			"a detached subscription refuses pulls and has lost its messages"),
		because(Departure{Why: "it takes another filter in an update"}, "a filter is immutable"),
		because(Departure{Why: "the new deadline is shown, the old one holds"},
			"a new acknowledgement deadline holds for the next deliveries"),
		because(Departure{Why: "it does not know the service (UNIMPLEMENTED)"},
			"a topic's policy is kept and returned", "a subscription's policy is kept and returned",
			"a new topic has an empty policy with an etag", "a policy changes its etag when it changes",
			"a policy with a stale etag is refused as aborted", "the owner has the permissions that are asked for"),
	)
}

func pstestPublishing() map[string]Departure {
	return because(Departure{Why: "it does not check messages"},
		"a publish without messages is refused", "a message without data and attributes is refused",
		"a publish holds 1,000 messages and no more", "a publish holds 10 MB and no more", "a message has 100 attributes and no more",
		"an attribute's key has 256 bytes and no more", "an attribute's value has 1,024 bytes and no more",
		"an attribute's key does not begin with goog", "an ordering key has 1,024 bytes and no more",
		"a publish has one ordering key for all messages", "a refused publish delivers no message")
}

func pstestStreams() map[string]Departure {
	return together(
		because(Departure{Why: "it takes no notice"},
			"a stream's acknowledgement deadline is between 10 and 600 seconds", "flow control can be set in a stream's first request only",
			"deadlines and their ids on a stream must be as many", "a negative deadline on a stream ends it",
			"a malformed acknowledgement id on a stream ends it", "a deadline is set to 600 seconds at most and not below zero",
			"an acknowledgement without ids is refused", "a pull for no messages is refused"),
		because(Departure{Why: "the stream stays open for ever"},
			"a stream ends when its subscription is deleted", "the client stops receiving when the subscription is deleted"),
		because(Departure{Why: "it ignores a stream's limits and deals messages out to all streams in turn"},
			"a stream holds no more messages than its limit", "a stream holds no more bytes than its limit",
			"a message larger than the stream's limit is delivered alone", "a nack makes room on a stream",
			"a stream that joins gets the messages that the others have no room for", "keys go to the streams that have room for them"),
	)
}

func pstestDelivery() map[string]Departure {
	const oneByOne = "it delivers a key's next message only when the one before is acknowledged"
	return together(
		because(Departure{Why: oneByOne},
			"several messages of a key are outstanding on one stream", "an ordered stream holds no more messages than its limit",
			"after a nack the message and the later ones of its key come again, in order",
			"after an expired lease the message and the later ones of its key come again, in order",
			"a key whose leases all run out comes again in order", "a redelivery redelivers acknowledged later messages of the key too",
			"acknowledged earlier messages of a key do not come again", "a key stays with one stream while messages of it are outstanding",
			"a dead stream's messages of a key come again in order", "exactly-once: a key keeps its order after a nack",
			"exactly-once: a key's messages are acknowledged in order", "filtered messages do not hold up their key"),
		because(Departure{Why: "it ignores the flag: every acknowledgement succeeds"},
			"exactly-once: a stale acknowledgement fails and says so", "exactly-once: a stale extension fails and says so",
			"exactly-once: an acknowledgement after the deadline fails", "exactly-once: an acknowledgement after a nack fails",
			"exactly-once: an error names the failed ids, and the others count"),
		because(Departure{Why: "it ignores the policy: everything comes again at once"},
			"a nacked message waits the minimum backoff at least", "an expired message waits the minimum backoff too",
			"the backoff grows with each attempt", "one message's backoff does not hold up others",
			"a key waits as a whole while one of its messages backs off", "one key's backoff does not hold up other keys"),
		because(Departure{Why: "it publishes the same dead letter again every 10 ms, for ever"},
			"exactly one copy goes to the dead letter topic"),
		because(Departure{Why: "it adds no attributes"},
			"a dead letter keeps its data, attributes and key, and names its source"),
		because(Departure{Why: "the dead letter goes on being published, and the key stands still"},
			"dead letters work on an ordered subscription, and the key goes on"),
		because(Departure{Why: "all subscriptions of a topic share one count"},
			"attempts are counted per subscription", "the client reports the attempt under a dead letter policy only"),
		because(Departure{Why: "it knows no quoted keys"}, "a filter quotes keys with special characters"),
		because(Departure{Why: "it takes an attribute without a comparison, and comparisons of something other than an attribute"},
			"a malformed filter is refused"),
		because(Departure{Why: "it takes any length"}, "a filter has 256 bytes at most"),
	)
}

func pstestReplay() map[string]Departure {
	return together(
		because(Departure{Why: "it replays the later messages of all topics, and panics (a nil pointer) if there are any", Harmful: true},
			"a seek to the future discards the messages published before",
			"a seek to the past brings back acknowledged messages that are retained",
			"a seek brings back the messages published from its time on",
			"a seek to the past without retention brings back unacknowledged messages only",
			"a seek on an ordered subscription replays keys in order",
			"messages that a topic retains can be replayed without the subscription's retention",
			"a new subscription can seek to messages that its topic retained before"),
		because(Departure{Why: "it has no snapshots (UNIMPLEMENTED)"},
			"a seek on or to a missing resource is not found",
			"a seek to a snapshot restores the messages that were unacknowledged then and brings back later ones",
			"a snapshot restores keys in order", "another subscription of the topic can seek to a snapshot",
			"a new subscription can seek to a snapshot that outlived its own", "a seek to another topic's snapshot is refused",
			"a snapshot names its topic and expires within 7 days", "a second snapshot of the same name already exists",
			"a snapshot of a missing subscription is not found", "a snapshot's labels are kept and can be updated",
			"snapshots are listed in pages, each once", "a topic's snapshots are listed", "a deleted snapshot is not found"),
	)
}

func pstestSchemas() map[string]Departure {
	return together(
		because(Departure{Why: "it keeps schemas and never looks into them"},
			"a malformed schema definition is refused", "a protobuf schema imports nothing and has one top-level message",
			"a definition can be validated without being created", "a message can be validated without being published",
			"a topic with a missing schema is not found", "a binary message that fits the schema is accepted, another refused",
			"a JSON message that fits the schema is accepted, another refused", "a message names the schema it was validated against",
			"a deleted schema is named _deleted-schema_ and refuses messages", "a malformed revision is refused",
			"a message may fit any revision of its topic's schema, and names it",
			"a message must fit a revision within its topic's bounds"),
		because(Departure{Why: "it overwrites the first"}, "a second schema of the same name already exists"),
		because(Departure{Why: "it always answers in full"},
			"a schema's basic view leaves out the definition", "schemas are listed in pages, each once"),
		because(Departure{Why: "it ignores the page size"}, "revisions are listed, each once"),
	)
}
