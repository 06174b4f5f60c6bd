package main

import (
	"fmt"
	"slices"
	"strings"

	"example.com/lockstep/internal/topics"
)

// docEdits adds the aggregate's operations to docs/security.md. Tables in that file list the
// outcomes of all operations, and TestAccess compares these tables with the services. Each new row
// is a copy of the row of the same operation on videos. If the aggregate has a parent, the rows of
// its creation are copies of the rows of a video's deletion.
func (c *change) docEdits() {
	a := c.aggregate
	one := "/v1/" + a.Plural() + "/{" + a.Name + "_id}`"
	creation := []string{"POST /v1/videos`", "/video.v1.VideoService/CreateVideo`"}
	if a.Parent != nil { // as with DELETE, because another tenant does not see the parent
		creation = []string{"DELETE /v1/videos/{id}`", "/video.v1.VideoService/DeleteVideo`"}
	}
	c.outcomes("/video.v1.VideoService/GetVideo`", [][2]string{
		{"POST " + a.CollectionPath() + "`", creation[0]},
		{"GET " + one, "GET /v1/videos/{id}`"}, {"PATCH " + one, "PATCH /v1/videos/{id}`"}, {"DELETE " + one, "DELETE /v1/videos/{id}`"},
		{"/video.v1." + a.Type() + "Service/Create" + a.Type() + "`", creation[1]},
		{"/video.v1." + a.Type() + "Service/Get" + a.Type() + "`", "/video.v1.VideoService/GetVideo`"},
		{"/video.v1." + a.Type() + "Service/Update" + a.Type() + "`", "/video.v1.VideoService/UpdateVideo`"},
		{"/video.v1." + a.Type() + "Service/Delete" + a.Type() + "`", "/video.v1.VideoService/DeleteVideo`"},
		{"/video.replication.v1.ReplicationService/Get" + a.Type() + "Rows`", "/video.replication.v1.ReplicationService/GetVideoRows`"},
		{"/video.replication.v1.ReplicationService/List" + a.Type() + "Rows`", "/video.replication.v1.ReplicationService/ListVideoRows`"},
	})
	c.outcomes("/catalog.v1.CatalogService/GetVideo`", [][2]string{
		{"GET " + a.CollectionPath() + "`", "GET /v1/videos`"}, {"GET " + one, "GET /v1/videos/{id}`"},
		{"/catalog.v1.CatalogService/Get" + a.Type() + "`", "/catalog.v1.CatalogService/GetVideo`"},
		{"/catalog.v1.CatalogService/List" + a.Types() + "`", "/catalog.v1.CatalogService/ListVideos`"},
	})
}

// personalData adds the aggregate to docs/data-protection.md, because each row of the aggregate has
// a user id and text that this user wrote.
func (c *change) personalData() {
	const document = "docs/data-protection.md"
	a := c.aggregate
	names, parent := make([]string, len(a.Fields)), ""
	for i, f := range a.Fields {
		names[i] = strings.ReplaceAll(f.Name, "_", " ")
	}
	if a.Parent != nil {
		parent = "`" + a.Parent.Name + "_id`, "
	}
	last := len(names) - 1
	written := strings.Join(names[:last], ", ")
	if last > 0 {
		written += " and "
	}
	c.ahead(document, "title and description of a video", fmt.Sprintf("%s%s of %s %s, ", written, names[last], a.Article(), a.Name))
	c.behind(document, "| `video.videos`", fmt.Sprintf(", `%s.%s`", a.Owner(), a.Plural()))
	c.behind(document, "| `catalog.video_projection`", fmt.Sprintf(", `%s.%s_projection`", a.Reader(), a.Name))
	c.behind(document, "| the subscriptions `"+topics.Subscription(topics.Video, topics.Catalog)+"`",
		", `"+topics.Subscription(a.Topic(), topics.Catalog)+"`")
	c.behind(document, "| a video of `catalog` | the same without `uploader_id` |\n", fmt.Sprintf(
		"| %[1]s %[2]s of `%[3]s` | `%[2]s_id`, `user_id`, %[5]sversion, times, the id of its last event |\n"+
			"| %[1]s %[2]s of `%[4]s` | `%[2]s_id`, version, times, the id of its last event |\n",
		a.Article(), a.Name, a.Owner(), a.Reader(), parent))
}

// outcomes adds rows to the table in docs/security.md that contains the operation known. rows has
// pairs of operations. The first operation of a pair gets a copy of the row of the second
// operation.
func (c *change) outcomes(known string, rows [][2]string) {
	const document, ruler = "docs/security.md", "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
	c.pattern(document, `<!-- table: \w+ -->\n(?:\|.*\n)+`, func(m []string) string {
		if !strings.Contains(m[0], known) {
			return m[0]
		}
		head, body, _ := strings.Cut(m[0], ruler)
		for _, row := range rows {
			_, like, found := strings.Cut(body, "| `"+row[1])
			if !found {
				c.fail(fmt.Errorf("%s: the table of %s has no row of %s", document, known, row[1]))
			}
			like, _, _ = strings.Cut(like, "\n")
			body += "| `" + row[0] + like + "\n"
		}
		lines := slices.Collect(strings.Lines(body))
		slices.SortFunc(lines, func(a, b string) int { return strings.Compare(operation(a), operation(b)) })
		return head + ruler + strings.Join(lines, "")
	})
}

// operation returns the first column of a row, which names the operation.
func operation(row string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(row, "| `"), "`")
	return name
}
