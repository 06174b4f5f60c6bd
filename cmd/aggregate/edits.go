package main

import (
	"fmt"
	"strings"

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
	const serve, erase = "services/video/serve.go", "services/video/erase.go"
	own := fmt.Sprintf(`"%s/services/video/%s"`, c.module, a.Name)
	c.inside("services/video/access.go", "var access = auth.Rules{", c.part("parts/owner_access.tmpl"))
	c.inside(serve, "import (", own)
	c.inside(serve, "type services struct {", a.Plural()+" *"+a.Name+".Service")
	c.inside(serve, "return services{", a.Plural()+": "+a.Name+".NewService(db, writer),")
	c.inside(serve, "comparable: map[string]*reconcile.Table{", a.Name+".AggregateType: "+a.Name+".NewTable(db),")
	c.ahead(serve, "\tregisterReplication(",
		fmt.Sprintf("\t%[1]s.Mount(router, s.%[2]s, log)\n\t%[1]s.RegisterGRPC(rpc, s.%[2]s)\n", a.Name, a.Plural()))
	c.inside(erase, "import (", own)
	c.inside(erase, "var Types = []string{", a.Name+".AggregateType,")
	c.inside(erase, "for _, of := range []struct{ kind, query string }{", "{"+a.Name+".AggregateType, "+a.Name+".SelectIDs},")
	c.inside(erase, "return []erasure.Found{", fmt.Sprintf(`{What: %q, Count: %s},`, a.Plural(), a.Plural()))
	c.behind(erase, "func (e *Erasure) Find(ctx context.Context) ([]erasure.Found, error) {\n", c.part("parts/owner_find.tmpl"))
	c.ahead(erase, "\tif kind != aggregateType {\n", c.part("parts/owner_owned.tmpl"))
	c.inside(erase, "for _, deleteRows := range []func(context.Context, auth.Principal, func(error) error) error{",
		"e.delete"+a.Types()+",")
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
	const projector = "services/catalog/projector.go"
	c.inside("services/catalog/access.go", "var access = auth.Rules{", c.part("parts/reader_access.tmpl"))
	c.inside(projector, "type Projector struct {", a.Plural()+" *projection.Projection["+a.Type()+"]")
	c.inside(projector, "return &Projector{",
		fmt.Sprintf("%[1]s: projection.New(writer, %[1]s{db, owner, shadow}, waiters, log),", a.Plural()))
	c.inside(projector, "return inbox.Route{", a.Name+"Type: p."+a.Plural()+",")
	c.inside(projector, "return []reconcile.Comparison{", c.part("parts/reader_comparison.tmpl"))
	c.inside(projector, "return []backfill.Filler{", "p."+a.Plural()+",")
	c.inside(projector, "for _, rows := range []positioned{", a.Plural()+"{db: p.db},")
	c.inside(projector, "var isIDOf = map[string]func(id string) bool{", a.Name+"Type: isUUID,")
	c.inside("services/catalog/rebuild.go", "var shadows = []string{", "rebuild.Shadow("+a.Name+"Table),")
	c.inside("services/catalog/rebuild.go", "parts := []rebuild.Part{",
		fmt.Sprintf("{Table: %[1]sTable, Key: %[1]sKey, Shadow: shadow.%[2]s},", a.Name, a.Plural()))
	c.behind("services/catalog/rest.go", "serve.Handler(a.log, a.get))\n", c.part("parts/reader_mount.tmpl"))
	c.inside("services/catalog/erase.go", "var Types = []string{", a.Name+"Type,")
	c.ahead("services/catalog/erase.go", "\tif aggregateType != videoType {\n", c.part("parts/reader_owned.tmpl"))
	c.inside("services/catalog/store_erase.go", "var userTables = []userTable{",
		fmt.Sprintf("{%q, %[2]sTable, \"user_id\", %[2]sKey},", a.Plural(), a.Name))
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
	const owner, reader, tenants = "services/video/access_test.go", "services/catalog/access_test.go", "migrations/tenants_test.go"
	c.inside(owner, "Shared: []string{", c.part("parts/owner_shared.tmpl"))
	c.inside(owner, "Bodies: map[string]string{", c.part("parts/owner_bodies.tmpl"))
	c.inside(owner, "return map[string]string{", fmt.Sprintf(`"%s_id": a.new%s(owner.User),`, a.Name, a.Type()))
	c.inside("services/video/cmd/video/main_test.go", "var videoServices = slices.Sorted(slices.Values([]string{",
		fmt.Sprintf(`"video.v1.%sService",`, a.Type()))
	c.inside(reader, "Shared: []string{", c.part("parts/reader_shared.tmpl"))
	c.inside(reader, "Bodies: map[string]string{", c.part("parts/reader_bodies.tmpl"))
	// The list may already have the id of the parent.
	if p := a.Parent; p != nil && !strings.Contains(c.text(reader), fmt.Sprintf("\t%q: ", p.Name+"_id")) {
		c.inside(reader, "return map[string]string{", fmt.Sprintf(`"%s_id": id.String(),`, p.Name))
	}
	c.inside(reader, "return map[string]string{", fmt.Sprintf(`"%s_id": f.new%s(t, authtest.Owner),`, a.Name, a.Type()))
	c.inside("services/catalog/peer_test.go", "type peer struct {", "\n"+a.Plural()+" map[string]*videov1."+a.Type())
	c.behind("services/catalog/openapi_test.go", "\tmedia, path := resp.Header.Get(\"Content-Type\"), req.URL.Path\n",
		c.part("parts/reader_conforms.tmpl"))
	c.behind(tenants, "const rowsOfTwoTenants = `", c.part("parts/tenant_rows.tmpl"))
	c.inside(tenants, "migrations.Video: {", fmt.Sprintf(`%q: "SELECT INSERT UPDATE",`, a.Plural()))
	c.inside(tenants, "migrations.Catalog: {", fmt.Sprintf(`%q: "SELECT",`, a.Name+"_projection"))
}
