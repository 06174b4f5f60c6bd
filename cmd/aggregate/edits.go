package main

import (
	"fmt"
	"regexp"

	"example.com/lockstep/cmd/fork/repo"
)

// newFiles adds the files that are only for the aggregate. It renders them from templates.
func (c *change) newFiles() {
	a := c.aggregate
	owner, reader := "services/video/", "services/catalog/"
	for _, f := range []struct{ name, template string }{
		{"proto/" + a.Name + "/events/v1/events.proto", "proto/events.proto.tmpl"},
		{"proto/video/v1/" + a.Name + "_service.proto", "proto/service.proto.tmpl"},
		{c.migration("migrations/video"), "sql/owner.sql.tmpl"},
		{c.migration("migrations/catalog"), "sql/reader.sql.tmpl"},
		{owner + a.Name + "/" + a.Name + ".go", "owner/aggregate.go.tmpl"},
		{owner + a.Name + "/fields.go", "owner/fields.go.tmpl"},
		{owner + a.Name + "/events.go", "owner/events.go.tmpl"},
		{owner + a.Name + "/read.go", "owner/read.go.tmpl"},
		{owner + a.Name + "/store.go", "owner/store.go.tmpl"},
		{owner + a.Name + "/rest.go", "owner/rest.go.tmpl"},
		{owner + a.Name + "/grpc.go", "owner/grpc.go.tmpl"},
		{owner + "replication_" + a.Plural() + ".go", "owner/replication.go.tmpl"},
		{owner + "erase_" + a.Plural() + ".go", "owner/erase.go.tmpl"},
		{owner + a.Name + "_test.go", "owner/aggregate_test.go.tmpl"},
		{reader + a.Plural() + ".go", "reader/events.go.tmpl"},
		{reader + "store_" + a.Plural() + ".go", "reader/store.go.tmpl"},
		{reader + a.Plural() + "_read.go", "reader/read.go.tmpl"},
		{reader + a.Plural() + "_rest.go", "reader/rest.go.tmpl"},
		{reader + a.Plural() + "_grpc.go", "reader/grpc.go.tmpl"},
		{reader + "erase_" + a.Plural() + ".go", "reader/erase.go.tmpl"},
		{reader + a.Name + "_test.go", "reader/projection_test.go.tmpl"},
		{"services/" + a.Name + "_test.go", "system_test.go.tmpl"},
	} {
		c.create(f.name, f.template)
	}
}

// ownerEdits inserts code into the service that owns the aggregate.
func (c *change) ownerEdits() {
	a := c.aggregate
	own := fmt.Sprintf(`"%s/services/video/%s"`, c.module, a.Name)
	c.edit("services/video/access.go", func(s *source) {
		s.element("access", "auth.Rules", c.part("parts/owner_access.tmpl"))
	})
	c.edit("services/video/serve.go", func(s *source) {
		s.imports(own)
		s.member("services", a.Plural()+" *"+a.Name+".Service")
		s.element("newServices", "services", a.Plural()+": "+a.Name+".NewService(db, writer)")
		s.element("newServices", "comparable:", a.Name+".AggregateType: "+a.Name+".NewTable(db)")
	})
	c.ahead("services/video/serve.go", "\tregisterReplication(",
		fmt.Sprintf("\t%[1]s.Mount(router, s.%[2]s, log)\n\t%[1]s.RegisterGRPC(rpc, s.%[2]s)\n", a.Name, a.Plural()))
	c.edit("services/video/erase.go", func(s *source) {
		s.imports(own)
		s.element("Types", "[]string", a.Name+".AggregateType")
		s.element("Erasure.each", "map[string]string", a.Name+".AggregateType: "+a.Name+".SelectIDs")
		s.element("Erasure.Find", "[]erasure.Found", fmt.Sprintf(`{What: %q, Count: %s}`, a.Plural(), a.Plural()))
	})
	c.behind("services/video/erase.go", "func (e *Erasure) Find(ctx context.Context) ([]erasure.Found, error) {\n",
		c.part("parts/owner_find.tmpl"))
	c.ahead("services/video/erase.go", "\tif kind != aggregateType {\n", c.part("parts/owner_owned.tmpl"))
	c.behind("services/video/erase.go", "\tfor _, tenant := range tenants {\n", c.part("parts/owner_erase.tmpl"))
	c.behind("services/video/store_erase.go", "SELECT tenant_id FROM videos WHERE uploader_id = $1 AND deleted_at IS NULL",
		" UNION\n\t\tSELECT tenant_id FROM "+a.Plural()+" WHERE user_id = $1 AND deleted_at IS NULL")
	c.ahead("services/video/openapi.json", `    {"name": "operation"`,
		fmt.Sprintf("    {\"name\": %q, \"description\": \"%s.\"},\n", a.Plural(), a.Types()))
	c.ahead("services/video/openapi.json", "    \"/openapi.json\": {\n", c.part("openapi/owner_paths.tmpl"))
	c.ahead("services/video/openapi.json", "      \"Problem\": {\n        \"type\"", c.part("openapi/owner_schemas.tmpl"))
}

// readerEdits inserts code into the service with the read model.
func (c *change) readerEdits() {
	a := c.aggregate
	c.edit("services/catalog/access.go", func(s *source) {
		s.element("access", "auth.Rules", c.part("parts/reader_access.tmpl"))
	})
	c.edit("services/catalog/projector.go", func(s *source) {
		s.member("Projector", a.Plural()+" *projection.Projection["+a.Type()+"]")
		s.element("newProjector", "Projector", fmt.Sprintf("%[1]s: projection.New(writer, %[1]s{db, owner, shadow}, waiters, log)", a.Plural()))
		s.element("Projector.Handler", "inbox.Route", a.Name+"Type: p."+a.Plural())
		s.element("Projector.Comparisons", "[]reconcile.Comparison", c.part("parts/reader_comparison.tmpl"))
		s.element("Projector.Fillers", "[]backfill.Filler", "p."+a.Plural())
		s.element("projections.Positions", "[]positioned", a.Plural()+"{db: p.db}")
		s.element("isIDOf", "map[string]func(id string) bool", a.Name+"Type: isUUID")
	})
	c.edit("services/catalog/rebuild.go", func(s *source) {
		s.element("shadows", "[]string", "rebuild.Shadow("+a.Name+"Table)")
		s.element("NewRebuild", "[]rebuild.Part", fmt.Sprintf("{Table: %[1]sTable, Key: %[1]sKey, Shadow: shadow.%[2]s}", a.Name, a.Plural()))
	})
	c.behind("services/catalog/rest.go", "serve.Handler(a.log, a.get))\n", c.part("parts/reader_mount.tmpl"))
	c.edit("services/catalog/erase.go", func(s *source) { s.element("Types", "[]string", a.Name+"Type") })
	c.ahead("services/catalog/erase.go", "\twritten := map[string][]string{}\n", c.part("parts/reader_owned.tmpl"))
	c.edit("services/catalog/store_erase.go", func(s *source) {
		s.element("userRows", "[]userCount",
			fmt.Sprintf("{%q, `SELECT count(*) FROM %s_projection WHERE user_id = $1 AND deleted_at IS NULL`}", a.Plural(), a.Name))
	})
	c.ahead("services/catalog/openapi.json", `    { "name": "operation"`,
		fmt.Sprintf("    { \"name\": %q, \"description\": \"%s.\" },\n", a.Plural(), a.Types()))
	c.ahead("services/catalog/openapi.json", "    \"/openapi.json\": {\n", c.part("openapi/reader_paths.tmpl"))
	c.ahead("services/catalog/openapi.json", "      \"Source\": {\n", c.part("openapi/reader_schemas.tmpl"))
}

// protoEdits adds the methods for reads of the read model, and for replicas, to existing services
// in proto/.
func (c *change) protoEdits() {
	const reads, rows = "proto/catalog/v1/catalog_service.proto", "proto/video/replication/v1/replication_service.proto"
	for name, part := range map[string]string{reads: "proto/catalog", rows: "proto/replication"} {
		methods, messages := c.part(part+"_methods.tmpl"), c.part(part+"_messages.tmpl")
		c.pattern(name, `(?m)^service \w+ \{\n(?:.*\n)*?\}\n`, func(m []string) string { return m[0][:len(m[0])-len("}\n")] + methods + "}\n" })
		c.pattern(name, `\z`, func([]string) string { return messages })
	}
	imported := fmt.Sprintf("import \"video/v1/%s_service.proto\";\n", c.aggregate.Name)
	c.pattern(rows, `(?:import "[^"]+";\n)+`, func(m []string) string { return repo.SortedLines(m[0] + imported) })
}

// testEdits adds the aggregate to existing tests that list all aggregates, routes and tables.
func (c *change) testEdits() {
	a := c.aggregate
	c.edit("services/video/access_test.go", func(s *source) {
		s.element("TestAccess", "Shared:", c.part("parts/owner_shared.tmpl"))
		s.element("TestAccess", "Bodies:", c.part("parts/owner_bodies.tmpl"))
		s.element("TestAccess", "return", fmt.Sprintf(`"%s_id": a.new%s(owner.User)`, a.Name, a.Type()))
	})
	c.edit("services/video/cmd/video/main_test.go", func(s *source) {
		s.element("videoServices", "[]string", fmt.Sprintf("%q", "video.v1."+a.Type()+"Service"))
	})
	c.edit("services/catalog/access_test.go", func(s *source) {
		s.element("TestAccess", "Shared:", c.part("parts/reader_shared.tmpl"))
		s.element("TestAccess", "Bodies:", c.part("parts/reader_bodies.tmpl"))
		values := fmt.Sprintf(`"%s_id": f.new%s(t, authtest.Owner)`, a.Name, a.Type())
		if a.Parent != nil {
			// The literal may already have the id of the parent.
			parent := regexp.MustCompile(fmt.Sprintf(`"%s_id": [^"]`, a.Parent.Name))
			if !parent.MatchString(s.of(s.declaration("TestAccess"))) {
				values += fmt.Sprintf(`, "%s_id": id.String()`, a.Parent.Name)
			}
		}
		s.element("TestAccess", "return", values)
	})
	c.edit("services/catalog/peer_test.go", func(s *source) {
		s.member("peer", "\n"+a.Plural()+" map[string]*videov1."+a.Type())
	})
	c.behind("services/catalog/openapi_test.go", "\tmedia, path := resp.Header.Get(\"Content-Type\"), req.URL.Path\n",
		c.part("parts/reader_conforms.tmpl"))
	c.behind("migrations/tenants_test.go", "const rowsOfTwoTenants = `", c.part("parts/tenant_rows.tmpl"))
	c.edit("migrations/tenants_test.go", func(s *source) {
		s.element("tenantTables", "migrations.Video:", fmt.Sprintf(`%q: "SELECT INSERT UPDATE"`, a.Plural()))
		s.element("tenantTables", "migrations.Catalog:", fmt.Sprintf(`%q: "SELECT"`, a.Name+"_projection"))
	})
}
