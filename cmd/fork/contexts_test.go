package main

import "testing"

// TestContexts has a line for each rule, and for the nearest text of the other meaning. Forks
// in which each word has one meaning have neither rules nor this test.
func TestContexts(t *testing.T) {
	t.Parallel()
	to := words{aggregate: "item", plural: "items", owner: "store", reader: "front", name: "mall"}
	r := newRenamer(current, to, contexts)
	const service, deploy = "services/video/store.go", "deploy/terraform/video.tf"
	for _, c := range []struct{ file, text, want string }{
		{"x.md", "[video](../services/video/events.go) owns videos", "[store](../services/store/events.go) owns items"},
		{"x.md", "asks video for a video; the video's row", "asks store for an item; the item's row"},
		{"x.md", "a deleted video, video's outbox", "a deleted item, store's outbox"},
		{"x.md", "in the topic `video.events`, in `video.outbox`", "in the topic `item.events`, in `store.outbox`"},
		{"x.md", "`video outbox`, `video events show`", "`store outbox`, `store events show`"},
		{"x.md", "(#videos-database-was-restored) (#catalogs-database)", "(#stores-database-was-restored) (#fronts-database)"},
		{"x.md", "(#add-a-field-to-a-video)", "(#add-a-field-to-an-item)"},
		{"x.md", "[e](../proto/video/events/v1/events.proto) [s](../proto/video/v1/video_service.proto)",
			"[e](../proto/item/events/v1/events.proto) [s](../proto/store/v1/item_service.proto)"},
		{"x.md", "[video.go](../services/video/video.go)", "[item.go](../services/store/item.go)"},
		{"x.md", "Video's database", "Store's database"},
		{service, "package video\n\ntype Video struct{ VideoID int }\n", "package store\n\ntype Item struct{ ItemID int }\n"},
		{service, "package video\n\nvar video, videos = videov1.Video{}, \"example.com/proto/video/v1\"\n",
			"package store\n\nvar item, items = storev1.Item{}, \"example.com/proto/store/v1\"\n"},
		{service, "package video\n\nconst q = `SELECT FROM video.videos WHERE video_id = $1 AND aggregate_type = 'video'`\n",
			"package store\n\nconst q = `SELECT FROM store.items WHERE item_id = $1 AND aggregate_type = 'item'`\n"},
		{"services/x_test.go", "package x\n\nvar p = w.spawn(t, \"video\", w.videoAddr, video.Topic)\n",
			"package x\n\nvar p = w.spawn(t, \"store\", w.storeAddr, store.Topic)\n"},
		{"services/x_test.go", "package x\n\nvar p = Position{AggregateType: \"video\"}\n", "package x\n\nvar p = Position{AggregateType: \"item\"}\n"},
		{"cmd/dev/scenario/store.go", "package x\n\nvar s = topics.Video + p.Video.String()\n", "package x\n\nvar s = topics.Item + p.Store.String()\n"},
		{deploy, `name = "video-service"`, `name = "store-service"`},
		{deploy, "google_cloud_run_v2_service.video.name", "google_cloud_run_v2_service.store.name"},
		{deploy, "# changes every video of the tenant", "# changes every item of the tenant"},
		{"docker-compose.yml", "VIDEO_SERVICE_ADDR: video:8080", "STORE_SERVICE_ADDR: store:8080"},
		{"migrations/video/1.sql", "CREATE TABLE video.videos; GRANT x TO video_service; INDEX ON catalog.video_projection",
			"CREATE TABLE store.items; GRANT x TO store_service; INDEX ON front.item_projection"},
		{"internal/monitoring/alerts.go", "package m\n\nvar a = \"No instance of video\"\n", "package m\n\nvar a = \"No instance of store\"\n"},
		{"pg.sql", "pg_catalog.pg_class", "pg_catalog.pg_class"},
	} {
		if got := r.text(c.file, c.text); got != c.want {
			t.Errorf("%s: %q becomes\n%q, want\n%q", c.file, c.text, got, c.want)
		}
	}
	for name, want := range map[string]string{
		"services/video/video.go": "services/store/item.go", "services/video/cmd/video/main.go": "services/store/cmd/store/main.go",
		"services/catalog/videos.go": "services/front/items.go", "deploy/schemas/video_events.proto": "deploy/schemas/item_events.proto",
		"deploy/terraform/video_jobs.tf": "deploy/terraform/store_jobs.tf", "deploy/observability/grafana/boards/video.json": "deploy/observability/grafana/boards/store.json",
		"proto/video/replication/v1/replication_service.proto": "proto/store/replication/v1/replication_service.proto",
	} {
		if got := r.name(name); got != want {
			t.Errorf("%s becomes %s, want %s", name, got, want)
		}
	}
}
