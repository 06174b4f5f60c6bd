package monitoring

import "fmt"

const (
	restCount  = "http_server_request_duration_seconds_count"
	restFailed = restCount + `{http_response_status_code=~"5.."}`
)

// restFailures is the share of each service's requests that failed. It is 0 without a failure.
var restFailures = fmt.Sprintf("(%s or 0 * %s) / %s",
	perSecond(restFailed, services), perSecond(restCount, services), perSecond(restCount, services))

// spent returns the rate at which the budget is spent. At 1, the budget of 30 days lasts for 30
// days.
func (o objective) spent(window string) string {
	return fmt.Sprintf(o.bad, window) + " / (" + fmt.Sprintf(o.all, window) + fmt.Sprintf(" > 0) / %.3f", budget)
}

var overviewRows = []Row{
	{Title: "Objectives: 99.9 % within 30 days", Panels: []Panel{
		{Title: "Fresh reads: budget spent", Unit: "{budget}",
			Means:   "Above 1, more reads with a token fail or are stale than 99.9 % allow; at 14.4 the month's budget lasts for two days.",
			Queries: []Query{{"last hour", orZero(fresh.spent("1h"))}, {"last day", orZero(fresh.spent("1d"))}}},
		{Title: "Visible within 5 s: budget spent", Unit: "{budget}",
			Means:   "Above 1, more events become visible later than 5 s after their commit than 99.9 % allow.",
			Queries: []Query{{"last hour", orZero(visible.spent("1h"))}, {"last day", orZero(visible.spent("1d"))}}},
		{Title: "REST requests that fail (5xx)", Unit: "1",
			Means: "A rise is a fault of the service or of its database, not of its callers.", Queries: one(byService, restFailures)},
	}},
	{Title: "Flow", Panels: []Panel{
		{Title: "Requests", Unit: "{request}/s", Means: "The load on each service over REST.",
			Queries: one(byService, perSecond(restCount, services))},
		{Title: "Events", Unit: "{event}/s", Means: "The two lines follow each other: a gap that stays is a backlog between the services.",
			Queries: []Query{
				{"published", perSecond("outbox_published_total", "")},
				{"applied", perSecond(`inbox_events_total{outcome="applied"}`, "")},
			}},
		{Title: "Time from commit to visible", Unit: "s", Means: "A rise means that readers with a token wait longer, or ask the owner.",
			Queries: quantiles("inbox_event_age_at_apply_seconds", "")},
		{Title: "Canary", Unit: "{version}/s", Means: "With a canary the lines are equal: a gap that stays is a break between the services.",
			Queries: []Query{
				{"committed", orZero(perSecond("canary_commits_total", ""))},
				{"visible", orZero(perSecond("canary_visible_seconds_count", ""))},
			}},
		{Title: "Age of the oldest event that waits", Unit: "s", Means: "A rise means that events do not leave video.",
			Queries: one("oldest", "max(outbox_oldest_pending_age_seconds)")},
	}},
	{Title: "0 when all is well", Panels: []Panel{
		{Title: "Parked events", Unit: "{event}", Latest: true,
			Means:   "Pub/Sub has refused these events; each holds up its aggregate until an operator acts.",
			Queries: one("", "max(outbox_parked)")},
		{Title: "Blocked aggregates", Unit: "{aggregate}", Latest: true, Means: "These aggregates of catalog cannot go on just now.",
			Queries: one("", "sum(max by (subscription, reason) (inbox_blocked_aggregates))")},
		{Title: "Dead letters, last day", Unit: "{event}", Latest: true, Means: "catalog could not apply these events; each needs a person.",
			Queries: one("", "sum(increase(inbox_dead_letters_total[1d]))")},
		{Title: "Rows that differ, last day", Unit: "{row}", Latest: true,
			Means:   "The check of the read model against its owner has found these rows.",
			Queries: one("", "sum(increase(reconcile_rows_differing_total[1d]))")},
		{Title: "Lost commits, last day", Unit: "{row}", Latest: true,
			Means:   "video has lost commits that it had confirmed; catalog has taken video's state.",
			Queries: one("", "sum(increase(replica_divergences_total[1d]))")},
	}},
}
