package conformance

// Emulator returns the differences between the official emulator and the documentation. The
// emulator is version 0.8.20 of the component pubsub-emulator of the Google Cloud CLI.
func Emulator() map[string]Departure {
	return together(emulatorResources(), emulatorPublishing(), emulatorDelivery(), emulatorMissing())
}

func emulatorResources() map[string]Departure {
	return together(
		because(Departure{Why: "it leaves the state unspecified"}, "a new topic is active", "a new subscription is active"),
		because(Departure{Why: "it lists the subscriptions of a topic that does not exist: none"}, "a missing topic is not found"),
		because(Departure{Why: "it calls labels an unknown field (INVALID_ARGUMENT)"},
			"a topic's labels can be updated", "a subscription's labels can be updated"),
		because(Departure{Why: "it gives no expiration policy"}, "a subscription has the documented defaults"),
		because(Departure{Why: "it leaves that out"}, "a subscription reports its topic's retention"),
		because(Departure{Why: "it takes deadlines from 0 s on"},
			"the acknowledgement deadline is between 10 and 600 seconds", "a subscription update is held to the limits of a creation"),
		because(Departure{Why: "it refuses more than 7 days, which was the limit once"}, "retention is between 10 minutes and 31 days"),
		because(Departure{Why: "it takes any expiry"}, "a subscription expires after a day at least, or never"),
		because(Departure{Why: "it calls that unsupported (INVALID_ARGUMENT)"}, "a subscription's expiry can be updated"),
		because(Departure{Why: "it forgets a snapshot's labels and has no UpdateSnapshot"}, "a snapshot's labels are kept and can be updated"),
	)
}

func emulatorPublishing() map[string]Departure {
	return together(
		because(Departure{Why: "it does not check; above 11 MB it resets the connection"}, "a publish holds 10 MB and no more"),
		because(Departure{Why: "it does not check"},
			"a message has 100 attributes and no more", "an attribute's key has 256 bytes and no more",
			"an attribute's value has 1,024 bytes and no more", "an attribute's key does not begin with goog",
			"an ordering key has 1,024 bytes and no more", "a publish has one ordering key for all messages"),
		because(Departure{Why: "it delivers what the topic retains to every new subscription, without a seek"},
			"a new subscription does not begin with the messages that its topic retains"),
	)
}

func emulatorDelivery() map[string]Departure {
	const dead = "its jar mixes versions of gRPC, so it never notices an aborted stream, which keeps its messages for ever"
	return together(
		because(Departure{Why: "it never answers"}, "a keep-alive ping on an idle stream is answered"),
		because(Departure{Why: "it takes no notice"}, "flow control can be set in a stream's first request only"),
		because(Departure{Why: "it ignores a stream's limits: the first stream to come is sent everything"},
			"a stream holds no more messages than its limit", "a stream holds no more bytes than its limit",
			"a message larger than the stream's limit is delivered alone", "a nack makes room on a stream",
			"an ordered stream holds no more messages than its limit", "a stream that joins gets the messages that the others have no room for",
			"keys go to the streams that have room for them"),
		because(Departure{Why: "it answers with no messages"}, "a pull for no messages is refused"),
		because(Departure{Why: "it takes 601 s"}, "a deadline is set to 600 seconds at most and not below zero"),
		because(Departure{Why: dead, Sometimes: true}, "a dead stream's messages come again after their deadline, not before"),
		because(Departure{Why: dead}, "a dead stream's messages of a key come again in order"),
		because(Departure{Why: "the message goes to the end of its key, alone, behind the outstanding messages"},
			"after a nack the message and the later ones of its key come again, in order",
			"after an expired lease the message and the later ones of its key come again, in order",
			"a redelivery redelivers acknowledged later messages of the key too", "exactly-once: a key keeps its order after a nack"),
		because(Departure{Why: "the acknowledgement counts until the next pull"},
			"exactly-once: an acknowledgement after the deadline fails"),
		because(Departure{Why: "the first redelivery comes at once; with ordering, each"},
			"a nacked message waits the minimum backoff at least", "an expired message waits the minimum backoff too",
			"the backoff grows with each attempt", "one message's backoff does not hold up others",
			"a key waits as a whole while one of its messages backs off", "one key's backoff does not hold up other keys"),
		because(Departure{Why: "the message vanishes, and every further stream of the subscription ends in an error without text"},
			"dead letters work on an ordered subscription, and the key goes on"),
		because(Departure{Why: "a seek to a snapshot brings back nothing that the subscription never had"},
			"a new subscription can seek to a snapshot that outlived its own"),
	)
}

func emulatorMissing() map[string]Departure {
	return together(
		because(Departure{Why: "it has no DetachSubscription (UNIMPLEMENTED)"},
			"a detached subscription refuses pulls and has lost its messages"),
		because(Departure{Why: "it keeps filters and ignores them: everything is delivered, and any text is accepted as a filter"},
			"a filter delivers the messages that match and no others", "a filter tests an attribute's presence",
			"a filter with != passes other values and messages without the attribute",
			"a filter combines conditions with AND, OR, NOT and parentheses", "a filter compares prefixes",
			"a filter quotes keys with special characters", "a filter is case-sensitive", "a malformed filter is refused",
			"a filter has 256 bytes at most", "filtered messages do not hold up their key", "filtered messages count as acknowledged"),
		because(Departure{Why: "it seeks on unordered subscriptions only (UNIMPLEMENTED)"},
			"a seek on an ordered subscription replays keys in order"),
		because(Departure{Why: "it has no protobuf schemas (UNIMPLEMENTED)"},
			"a protobuf schema is read back as it was created", "a schema's basic view leaves out the definition",
			"a malformed schema definition is refused", "a protobuf schema imports nothing and has one top-level message",
			"a second schema of the same name already exists", "a definition can be validated without being created",
			"a message can be validated without being published", "a binary message that fits the schema is accepted, another refused",
			"a JSON message that fits the schema is accepted, another refused", "a message names the schema it was validated against",
			"schemas are listed in pages, each once", "a deleted schema is named _deleted-schema_ and refuses messages",
			"a committed revision becomes the schema, the former can be read by its id", "a malformed revision is refused",
			"revisions are listed, each once", "a rollback makes a new revision of an old definition", "a deleted revision is not found",
			"a message may fit any revision of its topic's schema, and names it",
			"a message must fit a revision within its topic's bounds"),
		because(Departure{Why: "it has no policies (UNIMPLEMENTED)"},
			"a topic's policy is kept and returned", "a subscription's policy is kept and returned",
			"a new topic has an empty policy with an etag", "a policy changes its etag when it changes",
			"a policy with a stale etag is refused as aborted", "the owner has the permissions that are asked for"),
	)
}
