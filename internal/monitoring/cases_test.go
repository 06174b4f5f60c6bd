package monitoring

import (
	"fmt"
	"maps"
	"time"
)

// steady is a counter's values that grow by n a minute, for longer than any case lasts.
func steady(n float64) string { return fmt.Sprintf("0+%gx1600", n) }

// level is a gauge's values.
func level(n float64) string { return fmt.Sprintf("%gx1600", n) }

// once is a counter's values that grow by 1 after ten minutes.
const once = "0x10 1x1600"

type series = map[string]string

func fires(at time.Duration, s, labels series) ruleCase {
	return ruleCase{series: s, at: at, labels: labels}
}

func stays(at time.Duration, s series) ruleCase { return ruleCase{quiet: true, series: s, at: at} }

// limits are two cases of one series that is a gauge.
func limits(at time.Duration, name string, over, under float64, labels series) []ruleCase {
	return []ruleCase{fires(at, series{name: level(over)}, labels), stays(at, series{name: level(under)})}
}

// reads has bad of 1,000 reads a minute, for the given minutes.
func reads(bad float64, minutes int) series {
	return series{
		`consistency_reads_total{outcome="fresh"}`:  steady(1000 - bad),
		`consistency_reads_total{outcome="failed"}`: fmt.Sprintf("0+%gx%d %gx1600", bad/2, minutes, bad/2*float64(minutes)),
		`consistency_reads_total{outcome="stale"}`:  fmt.Sprintf("0+%gx%d %gx1600", bad/2, minutes, bad/2*float64(minutes)),
	}
}

// canary has so many versions a minute that were committed, became visible, and did so in time.
func canary(committed, visible, inTime float64) series {
	return series{
		`canary_commits_total{instance="a"}`: level(0), `canary_commits_total{instance="b"}`: steady(committed),
		`canary_visible_seconds_count`: steady(visible), `canary_visible_seconds_bucket{le="5.0"}`: steady(inTime),
		`canary_visible_seconds_bucket{le="10.0"}`: steady(visible), `canary_visible_seconds_bucket{le="+Inf"}`: steady(visible),
	}
}

// calls has so many calls over gRPC a minute that are answered, and that fail with a code.
func calls(answered, failed float64, code string) series {
	return series{
		`rpc_server_call_duration_seconds_count{rpc_response_status_code="OK"}`:                  steady(answered),
		fmt.Sprintf(`rpc_server_call_duration_seconds_count{rpc_response_status_code=%q}`, code): steady(failed),
	}
}

// applied has late of 1,000 events a minute.
func applied(bound string, late float64) series {
	name := "inbox_event_age_at_apply_seconds_"
	return series{
		name + `bucket{subscription="video.events.catalog",le="` + bound + `"}`: steady(1000 - late),
		name + `bucket{subscription="video.events.catalog",le="10"}`:            steady(1000),
		name + `bucket{subscription="video.events.catalog",le="+Inf"}`:          steady(1000),
		name + `count{subscription="video.events.catalog"}`:                     steady(1000),
	}
}

func answers(ok, failed float64) series {
	const name = "http_server_request_duration_seconds_count"
	return series{name + `{http_response_status_code="200"}`: steady(ok), name + `{http_response_status_code="503"}`: steady(failed)}
}

// requests has so many requests a minute that Cloud Run counts, of both services.
func requests(ok, failed float64) series {
	const name = "run_googleapis_com:request_count"
	return series{
		name + `{service_name="video",response_code_class="2xx"}`:   steady(ok / 2),
		name + `{service_name="catalog",response_code_class="2xx"}`: steady(ok / 2),
		name + `{service_name="catalog",response_code_class="5xx"}`: steady(failed),
	}
}

// waits are those of video for a connection: 100 end with one in a minute. catalog waits for none.
func waits(seconds, canceled float64) series {
	const wait, got, lost = "database_pool_wait_seconds_total", "database_pool_acquires_total", "database_pool_canceled_acquires_total"
	video, catalog := `{service_name="video"}`, `{service_name="catalog"}`
	return series{
		wait + video: steady(seconds), got + video: steady(100), lost + video: steady(canceled),
		wait + catalog: steady(0), got + catalog: steady(1000), lost + catalog: steady(0),
	}
}

func offsets(failures, applied, saves float64) series {
	return series{
		`catalog_engagement_offset_failure_total{consumer_group="catalog.engagement"}`:     steady(failures),
		`inbox_events_total{subscription="engagement.events.catalog",outcome="applied"}`:   steady(applied),
		`catalog_engagement_offset_save_total{consumer_group="catalog.engagement"}`:        steady(saves),
		`inbox_events_total{subscription="video.events.catalog",outcome="applied"}`:        steady(1),
		`inbox_events_total{subscription="engagement.events.catalog",outcome="duplicate"}`: steady(1),
	}
}

const (
	hour            = time.Hour
	day             = 24 * time.Hour
	halfHour        = 30 * time.Minute
	google          = "pubsub_googleapis_com:subscription_"
	startsOfWorkers = `run_googleapis_com:container_startup_latencies_count{worker_pool_name="video-workers",monitored_resource="cloud_run_worker_pool"}`
	startsOfVideo   = `run_googleapis_com:container_startup_latencies_count{service_name="video",monitored_resource="cloud_run_revision"}`
)

var (
	onVideo = series{"subscription": "video.events.catalog"}
	onTopic = series{"topic": "projects/p/topics/video.events"}
	ofSub   = series{"subscription_id": "video.events.catalog"}

	onService = series{"service_name": "video"}
)

// cases are the lives of the series: for each alert at least one in which it fires, and one
// just below that.
var cases = map[string][]ruleCase{
	"FreshnessBurnsFast": {
		fires(70*time.Minute, reads(15, 70), nil), fires(7*hour, reads(7, 420), nil),
		stays(7*hour, reads(5, 420)),
		stays(100*time.Minute, reads(20, 60)), // over for 40 minutes
		stays(2*hour, series{`consistency_reads_total{outcome="failed"}`: "0x60 9x1600"}),
	},
	"FreshnessBurnsSlowly": {fires(day, reads(4, 1440), nil), stays(day, reads(2, 1440)), stays(day, reads(20, 60))},
	"VisibilityBurnsFast": {
		fires(70*time.Minute, applied("5", 15), nil), fires(70*time.Minute, applied("5.0", 15), nil),
		fires(7*hour, applied("5", 7), nil), stays(7*hour, applied("5", 5)),
	},
	"VisibilityBurnsSlowly": {fires(day, applied("5", 4), nil), stays(day, applied("5", 2))},
	"RequestsFail": {
		fires(halfHour, answers(94, 6), nil), fires(halfHour, calls(94, 6, "INTERNAL"), nil), fires(halfHour, with(calls(94, 6, "UNAVAILABLE"),
			`http_server_request_duration_seconds_count{http_response_status_code="200"}`, steady(9999)), nil),
		stays(halfHour, calls(96, 4, "INTERNAL")), stays(halfHour, calls(50, 50, "NOT_FOUND")),
		stays(halfHour, answers(96, 4)), stays(halfHour, answers(0, 1)),
	},
	"RequestsFailInstead": {
		fires(halfHour, requests(94, 6), nil), fires(halfHour, requests(0, 6), nil), stays(halfHour, requests(96, 4)), stays(halfHour, requests(0, 1)),
	},
	"CanaryLate": {
		fires(halfHour, canary(1, 1, 0.4), nil), fires(halfHour, series{"canary_commits_total": steady(1)}, nil), fires(halfHour, canary(1, 0, 0), nil),
		stays(halfHour, canary(1, 1, 0.6)), stays(halfHour, canary(0, 0, 0)), stays(halfHour, nil),
	},
	"CanaryStopped": {fires(halfHour, canary(0, 1, 1), nil), stays(halfHour, canary(0.2, 0, 0)), stays(halfHour, nil)},

	"EventsNotLeaving": limits(halfHour, "outbox_oldest_pending_age_seconds", 61, 60, nil),
	"BacklogUnknown":   limits(halfHour, "outbox_backlog_known", 0, 1, nil),
	"TopicPaused":      limits(halfHour, `outbox_topics_paused{topic="projects/p/topics/video.events"}`, 1, 0, onTopic),
	"EventsParked":     limits(halfHour, "outbox_parked", 1, 0, nil),
	"PublishesRefused": {
		fires(20*time.Minute, series{`outbox_publish_failures_total{kind="rejection",code="InvalidArgument"}`: once}, series{"code": "InvalidArgument"}),
		stays(20*time.Minute, series{`outbox_publish_failures_total{kind="outage",code="Unavailable"}`: steady(9)}),
		stays(halfHour, series{`outbox_publish_failures_total{kind="rejection",code="InvalidArgument"}`: once}), // over for 20 minutes
	},
	"LeasesLost": {
		fires(hour, series{"outbox_leases_lost_total": steady(1)}, nil), stays(hour, series{"outbox_leases_lost_total": steady(0.6)}),
	},
	"RelayMissing":    {fires(halfHour, nil, nil), stays(halfHour, series{"outbox_oldest_pending_age_seconds": level(0)})},
	"ConsumerMissing": {fires(halfHour, nil, nil), stays(halfHour, series{"inbox_in_flight_messages": level(0)})},

	"SubscriptionRefused": limits(halfHour, `inbox_pull_failures_in_a_row{subscription="video.events.catalog"}`, 1, 0, onVideo),
	"TenantsHeld":         limits(2*hour, "outbox_tenants_held", 1, 0, nil),
	"ConsumerHeldUp": append(limits(halfHour, `inbox_failures_in_a_row{subscription="video.events.catalog"}`, 1, 0, onVideo),
		append(limits(halfHour, `inbox_blocked_aggregates{subscription="video.events.catalog",reason="lacking"}`, 1, 0, onVideo),
			stays(halfHour, series{`inbox_blocked_aggregates{subscription="video.events.catalog",reason="locked"}`: level(9)}))...),
	"AggregatesBlocked": append(
		limits(halfHour, `inbox_blocked_aggregates{subscription="video.events.catalog",reason="locked"}`, 1, 0, with(onVideo, "reason", "locked")),
		stays(halfHour, series{`inbox_blocked_aggregates{subscription="video.events.catalog",reason="gap"}`: level(9)})),
	"GapsOpen": append(limits(halfHour, `inbox_gaps_open{subscription="video.events.catalog"}`, 1, 0, onVideo),
		stays(halfHour, series{`inbox_gaps_open{subscription="video.events.catalog"}`: "1x8 0 1x8 0 1x8 0 1x8"})), // each repaired in time
	"DeadLetters": {
		fires(20*time.Minute, series{`inbox_dead_letters_total{subscription="video.events.catalog"}`: once}, onVideo),
		stays(20*time.Minute, series{`inbox_dead_letters_total{subscription="video.events.catalog"}`: level(3)}),
	},
	"CheckpointStands": {
		fires(halfHour, offsets(1, 0, 0), nil), fires(halfHour, offsets(0, 1, 0), nil),
		stays(halfHour, offsets(1, 1, 1)), stays(halfHour, offsets(0, 0, 0)),
	},

	"OwnerLostCommits": {
		fires(20*time.Minute, series{`inbox_events_total{outcome="lost"}`: once}, nil),
		fires(20*time.Minute, series{`replica_divergences_total{aggregate_type="video"}`: once}, nil),
		stays(20*time.Minute, series{`inbox_events_total{outcome="gap"}`: steady(9), `replica_divergences_total{aggregate_type="video"}`: level(9)}),
	},
	"DriftFound": {
		fires(halfHour, series{`reconcile_rows_differing_total{aggregate_type="video",kind="missing"}`: once},
			series{"aggregate_type": "video", "kind": "missing"}),
		stays(halfHour, series{`reconcile_rows_differing_total{aggregate_type="video",kind="missing"}`: level(3)}),
	},
	"DriftNotChecked": limits(2*hour, `reconcile_check_age_seconds{aggregate_type="video"}`, 172801, 172800, series{"aggregate_type": "video"}),
	"RowsIncomplete":  limits(hour, `replica_incomplete_rows{aggregate_type="video"}`, 1, 0, series{"aggregate_type": "video"}),
	"RebuildOpen":     limits(13*hour, "reconcile_rebuild_open", 1, 0, nil),

	"IssuerKeysOld": limits(halfHour, `auth_keys_age_seconds{identity="users"}`, 1801, 1800, series{"identity": "users"}),
	"WritesLocked": {
		fires(halfHour, series{"database_locked_total": steady(1)}, nil), stays(halfHour, series{"database_locked_total": steady(0.6)}),
	},
	"WritesBusy": {
		fires(halfHour, series{"database_busy_total": steady(1)}, nil), stays(halfHour, series{"database_busy_total": steady(0.6)}),
		stays(halfHour, series{"database_locked_total": steady(1)}),
	},
	"IdempotencyKeysStay": {
		fires(2*hour, series{`idempotency_expired_keys{instance="a"}`: level(10001), `idempotency_expired_keys{instance="b"}`: level(10001)}, nil),
		stays(2*hour, series{`idempotency_expired_keys{instance="a"}`: level(99999), `idempotency_expired_keys{instance="b"}`: level(10000)}),
	},
	"ConnectionsShort": {
		fires(halfHour, waits(10.5, 0), onService), fires(halfHour, waits(1, 5.5), onService), stays(halfHour, waits(9.5, 5)),
		fires(halfHour, series{ // no wait ends with a connection
			`database_pool_wait_seconds_total{service_name="video"}`: steady(0), `database_pool_acquires_total{service_name="video"}`: steady(0),
			`database_pool_canceled_acquires_total{service_name="video"}`: steady(1),
		}, onService),
		fires(halfHour, series{ // the other pool does not hide it; on Cloud Run series of pools have no service_name
			`database_pool_wait_seconds_total{namespace="video-workers"}`: steady(10.5), `database_pool_acquires_total{namespace="video-workers"}`: steady(100),
			`database_pool_wait_seconds_total{namespace="catalog-workers"}`: steady(0), `database_pool_acquires_total{namespace="catalog-workers"}`: steady(1000),
		}, series{"namespace": "video-workers"}),
	},
	"MemoryShort": {
		fires(halfHour, series{`process_resident_memory_bytes{instance="a"}`: level(101), `go_gc_gomemlimit_bytes{instance="a"}`: level(100)}, nil),
		stays(halfHour, series{`process_resident_memory_bytes{instance="a"}`: level(100), `go_gc_gomemlimit_bytes{instance="a"}`: level(100)}),
	},
	"ProcessRestarts": {
		fires(20*time.Minute, series{"process_start_time_seconds": "1x5 2x5 3x3 4x1600"}, nil),
		stays(20*time.Minute, series{"process_start_time_seconds": "1x5 2x5 3x1600"}),
	},

	"BacklogOld": append(limits(halfHour, google+`oldest_unacked_message_age{subscription_id="video.events.catalog"}`, 301, 300, ofSub),
		stays(halfHour, series{google + `oldest_unacked_message_age{subscription_id="video.events.catalog.dlq"}`: level(9999)})),
	"DeadLettersWait": append(
		limits(halfHour, google+`num_undelivered_messages{subscription_id="video.events.catalog.dlq"}`, 1, 0, series{"subscription_id": "video.events.catalog.dlq"}),
		stays(halfHour, series{google + `num_undelivered_messages{subscription_id="video.events.catalog"}`: level(9999)})),
	"BrokerDeadLetters": {
		fires(15*time.Minute, series{google + `dead_letter_message_count{subscription_id="video.events.catalog"}`: once}, ofSub),
		stays(15*time.Minute, series{google + `dead_letter_message_count{subscription_id="video.events.catalog"}`: level(3)}),
	},
	"AcksExpire": {
		fires(halfHour, series{google + `expired_ack_deadlines_count{subscription_id="video.events.catalog"}`: steady(11)}, ofSub),
		stays(halfHour, series{google + `expired_ack_deadlines_count{subscription_id="video.events.catalog"}`: steady(9)}),
	},
	"InstancesRestart": {
		fires(hour, series{startsOfVideo: steady(0.5)}, series{"service_name": "video"}), stays(hour, series{startsOfVideo: steady(0.3)}),
		fires(hour, series{startsOfWorkers: steady(0.5)}, series{"worker_pool_name": "video-workers"}), stays(hour, series{startsOfWorkers: steady(0.3)}),
		fires(hour, series{startsOfVideo: steady(0.3), startsOfWorkers: steady(0.5)}, series{"worker_pool_name": "video-workers"}),
	},
}

// with is labels and one more.
func with(labels series, name, value string) series {
	more := maps.Clone(labels)
	more[name] = value
	return more
}
