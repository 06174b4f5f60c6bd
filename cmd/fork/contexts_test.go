package main

import (
	"slices"
	"testing"
)

const service, deploy = "services/video/store.go", "deploy/terraform/video.tf"

var store = words{aggregate: "item", plural: "items", owner: "store", reader: "front", name: "mall"}

// contextCases have a line for each rule, and for the nearest text of the other meaning.
var contextCases = []struct{ file, text, want string }{
	{"x.md", "[video](../services/video/events.go) owns videos", "[store](../services/store/events.go) owns items"},
	{"x.md", "asks video for a video; the video's row", "asks store for an item; the item's row"},
	{"x.md", "a deleted video, video's outbox", "a deleted item, store's outbox"},
	{"x.md", "in the package `video.events.v1`, in `video.outbox`", "in the package `item.events.v1`, in `store.outbox`"},
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
	{"internal/monitoring/metrics.go", "package m\n\nvar l = Label{Name: \"aggregate_type\", Values: []string{\"video\"}}\n",
		"package m\n\nvar l = Label{Name: \"aggregate_type\", Values: []string{\"item\"}}\n"},
	{deploy, `name = "video-service"`, `name = "store-service"`},
	{deploy, "google_cloud_run_v2_service.video.name", "google_cloud_run_v2_service.store.name"},
	{deploy, "# changes every video of the tenant", "# changes every item of the tenant"},
	{"docker-compose.yml", "VIDEO_SERVICE_ADDR: video:8080", "STORE_SERVICE_ADDR: store:8080"},
	{"migrations/video/1.sql", "CREATE TABLE video.videos; GRANT x TO video_service; INDEX ON catalog.video_projection",
		"CREATE TABLE store.items; GRANT x TO store_service; INDEX ON front.item_projection"},
	{"internal/monitoring/alerts.go", "package m\n\nvar a = \"No instance of video\"\n", "package m\n\nvar a = \"No instance of store\"\n"},
	{"pg.sql", "pg_catalog.pg_class", "pg_catalog.pg_class"},
	{"internal/connect/identity_test.go", "package x\n\nvar a = \"https://video.example\"\n", "package x\n\nvar a = \"https://store.example\"\n"},
	{"internal/connect/identity_test.go", "package x\n\nvar a = \"Video.Example\"\n", "package x\n\nvar a = \"Store.Example\"\n"},
	{"cmd/fork/words.go", "package main\n\nvar w = words{aggregate: \"video\", owner:     \"video\"}\n",
		"package main\n\nvar w = words{aggregate: \"item\", owner:     \"store\"}\n"},
	{"x.md", "a video.tf, a [`video.tf`](../deploy/terraform/video.tf)", "a store.tf, a [`store.tf`](../deploy/terraform/store.tf)"},
	{service, "package video\n\nvar d = videov1.File_video_v1_video_service_proto\n", "package store\n\nvar d = storev1.File_store_v1_item_service_proto\n"},
	{"x.yaml", "VIDEO_PORT VIDEO_SERVICE_ADDR VIDEO_DELETED", "STORE_PORT STORE_SERVICE_ADDR ITEM_DELETED"},
	{".github/workflows/ci.yml", "jq env.VIDEO of a VIDEO", "jq env.STORE of a STORE"},
	{".github/workflows/ci.yml", "VIDEO: ${{ needs.push.outputs.video }}", "STORE: ${{ needs.push.outputs.store }}"},
	{deploy, "select video_id, video_events, video_migrate", "select item_id, item_events, store_migrate"},
	{"internal/monitoring/alerts.go", "package m\n\nvar a = \"VIDEO_DELETED\" // of VIDEO_DELETED\n", "package m\n\nvar a = \"ITEM_DELETED\" // of ITEM_DELETED\n"},
	{"migrations/migrations.go", "package migrations\n\nvar video embed.FS\n\nconst Video Service = \"video\"\n",
		"package migrations\n\nvar store embed.FS\n\nconst Store Service = \"store\"\n"},
	{"migrations/x_test.go", "package x\n\nvar s = `WHERE table_schema IN ('video', 'catalog')`\n", "package x\n\nvar s = `WHERE table_schema IN ('store', 'front')`\n"},
	{"internal/x.go", "package x\n\nvar v = migrations.Video\n", "package x\n\nvar v = migrations.Store\n"},
	{"cmd/aggregate/edits.go", "package x\n\nvar s = \"migrations.Video:\"\n", "package x\n\nvar s = \"migrations.Store:\"\n"},
	{"cmd/dev/run.go", "package main\n\nvar video = all.video\n", "package main\n\nvar store = all.store\n"},
	{"deploy/release_test.go", "package deploy\n\nvar x = Video{}\n", "package deploy\n\nvar x = Item{}\n"},
	{"deploy/README.md", "`aggregate_type`: video, engagement", "`aggregate_type`: item, engagement"},
	{"services/x_test.go", "package x\n\nconst q = `SET search_path = video`\n", "package x\n\nconst q = `SET search_path = store`\n"},
	{"internal/operator/harness_test.go", "package o\n\nvar t = m{\"video\": topics.InProject(x)}\n", "package o\n\nvar t = m{\"item\": topics.InProject(x)}\n"},
	{"internal/operator/harness_test.go", "package o\n\nvar t = m{\"video\": \"projects/p/topics/x\"}\n",
		"package o\n\nvar t = m{\"item\": \"projects/p/topics/x\"}\n"},
	{deploy, `id =~ "(video|engagement).events"`, `id =~ "(item|engagement).events"`},
	{"x.md", "key = video id", "key = item id"},
	{service, "package video\n\nvar c = \"run video outbox status\"\n", "package store\n\nvar c = \"run store outbox status\"\n"},
	{service, "package video\n\nvar c = table(\"docs/security.md\", \"video\")\n", "package store\n\nvar c = table(\"docs/security.md\", \"store\")\n"},
	{"internal/operator/backfill_test.go", "package o\n\nvar s = \"video: 6 rows read\"\n", "package o\n\nvar s = \"item: 6 rows read\"\n"},
	{"internal/operator/usage/backfill.txt", "only this type of aggregate, such as video\n", "only this type of aggregate, such as item\n"},
	{"internal/operator/usage/reconcile.txt", "the counters of the video are not the sums\n", "the counters of the item are not the sums\n"},
	{"pkg/x_test.go", "package x\n\n// Output: video/a 2\n", "package x\n\n// Output: item/a 2\n"},
	{service, "package video\n\nvar s = addr(\"video:8080\")\n", "package store\n\nvar s = addr(\"store:8080\")\n"},
	{"docker-compose.yml", "  video:\n", "  store:\n"},
	{"x.md", "the video service", "the store service"},
	{"Makefile", "\t@for service in video catalog; do", "\t@for service in store front; do"},
	{"x.md", "FIELDS=x PARENT=video", "FIELDS=x PARENT=item"},
	{"pkg/client/x_test.go", "package x\n\nvar o = client.Options{Video: \"localhost:1\"}\n", "package x\n\nvar o = client.Options{Store: \"localhost:1\"}\n"},
	{"pkg/client/client.go", "package client\n\nvar video = dial(o.Video)\n", "package client\n\nvar store = dial(o.Store)\n"},
	{"services/goclient_test.go", "package x\n\nvar o = Options{Video: w.videoAddr}\n", "package x\n\nvar o = Options{Store: w.storeAddr}\n"},
	{"pkg/client/x_test.go", "package x\n\nvar r = Response{Video: &videov1.Video{}}\n", "package x\n\nvar r = Response{Item: &storev1.Item{}}\n"},
	{"clients/typescript/src/client.ts", "import type { paths as VideoPaths } from \"./video.js\"", "import type { paths as StorePaths } from \"./store.js\""},
	{"clients/typescript/src/story.ts", "// creates a video\nawait video.POST(\"/v1/videos\", video_id)", "// creates an item\nawait store.POST(\"/v1/items\", item_id)"},
	{"clients/typescript/src/story.ts", "const { video, catalog } = connect({ videoURL })", "const { store, front } = connect({ storeURL })"},
	{"x.go", "package x\n\n// video is a video of an answer.\ntype video struct{}\n", "package x\n\n// item is an item of an answer.\ntype item struct{}\n"},
	{"x.proto", "// \"video\".\n", "// \"item\".\n"},
	{"x.proto", "// newest video first\n", "// newest item first\n"},
	{service, "package video\n\nvar s = \"video serves\"\n", "package store\n\nvar s = \"store serves\"\n"},
	{"services/x_test.go", "package x\n\nvar s = \"%f MiB in video (%f before)\"\n", "package x\n\nvar s = \"%f MiB in store (%f before)\"\n"},
	{service, "package video\n\nvar s = \"get video: %w\"\n", "package store\n\nvar s = \"get item: %w\"\n"},
}

// contextPaths are names of files.
var contextPaths = map[string]string{
	"services/video/video.go": "services/store/item.go", "services/video/cmd/video/main.go": "services/store/cmd/store/main.go",
	"services/catalog/videos.go": "services/front/items.go", "deploy/schemas/video_events.proto": "deploy/schemas/item_events.proto",
	"deploy/terraform/video.tf": "deploy/terraform/store.tf", "deploy/observability/grafana/boards/video.json": "deploy/observability/grafana/boards/store.json",
	"proto/video/replication/v1/replication_service.proto": "proto/store/replication/v1/replication_service.proto",
}

// Forks in which each word has one meaning have neither rules nor these tests.
func TestContexts(t *testing.T) {
	t.Parallel()
	for _, wrong := range wrongWith(contexts) {
		t.Error(wrong)
	}
}

// TestEachContextIsTried takes each rule away.
func TestEachContextIsTried(t *testing.T) {
	t.Parallel()
	for i, rule := range contexts {
		if len(wrongWith(slices.Delete(slices.Clone(contexts), i, i+1))) == 0 {
			t.Errorf("no case needs rule %d, %s: %s", i, rule.means, rule.Why)
		}
	}
}

// wrongWith returns the cases that rules decide wrong.
func wrongWith(rules []rule) (wrong []string) {
	r := newRenamer(current, store, rules)
	for _, c := range contextCases {
		if got := r.text(c.file, c.text); got != c.want {
			wrong = append(wrong, c.file+": "+c.text+"\nbecomes\n"+got+"\nwant\n"+c.want)
		}
	}
	for name, want := range contextPaths {
		if got := r.name(name); got != want {
			wrong = append(wrong, name+" becomes "+got+", want "+want)
		}
	}
	return wrong
}
