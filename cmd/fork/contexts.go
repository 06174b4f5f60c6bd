package main

import "regexp"

// determiners are words that stand before a noun. So "video" in "a video" is an aggregate. In "asks
// video" there is no determiner, and "video" is the owner.
const determiners = `a|an|the|each|one|two|no|every|any|another|other|its|their|his|her|this|these|those|same|new|old|deleted|unknown|` +
	`locked|erased|synthetic|popular|single|bad|long|given|such|present|next|last|first|second|third|young|own|whose|user|tenant|` +
	`stored|changed|largest|newest|flat|types|neither`

// contexts are the rules of this repository.
var contexts = []rule{
	// Names that are fixed: paths, packages, tables, environment.
	{means: owner, Why: "the module of a service",
		before: endsWith(`services/|cmd/|migrations/|\./`), after: startWith(`[/"' )*\x60\]]|$`)},
	{means: owner, Why: "the owner's host", after: startWith(`\.([Ee]xample|internal)\b`)},
	{means: aggregate, Why: "events are those of an aggregate", after: startWith(`[./_-]events\b`)},
	{means: owner, Why: "the owner among the words", in: in(`^cmd/fork/words\.go$`), before: endsWith(`owner: +"`)},
	{means: owner, Why: "a board or file of a service", before: endsWith(`boards[/_]`)},
	{means: owner, Why: "the owner's API", after: startWith(`[./](v1|replication)\b`)},
	{means: owner, Why: "the descriptor of the owner's API",
		kind: code, before: endsWith(`\bFile_`), after: startWith(`_(v1|replication)_`)},
	{means: owner, Why: "the alias of the owner's API", ident: ident(`\w+v1`), after: startWith(`v1`)},
	{means: aggregate, Why: "the file of the aggregate, or of a call's answer",
		after: startWith(`(_test|_service|_api_test)?\.(go|json|proto)\b`)},
	{means: owner, Why: "the owner's environment", ident: ident(`[A-Z]+_SERVICE_ADDR|[A-Z]+_PORT|BUILT_[A-Z]+|GIVEN_[A-Z]+`)},
	{means: owner, Why: "the owner's roles", ident: ident(`[a-z]+_(service|owner)`)},
	{means: owner, Why: "the owner's image", in: in(`^(\.github|deploy)/`), ident: ident(`[A-Z]+`)},
	{means: aggregate, Why: "columns and tables with the aggregate's name",
		ident: ident(`[a-z]+_(id|ids|projection\w*|counters?\w*|user_\w*|events)|(by|of|recount|count)_\w+`)},

	{means: aggregate, Why: "an event, or an error's reason",
		ident: ident(`\w*([a-z](Created|Updated|Deleted)|_(CREATED|UPDATED|DELETED|NOT_FOUND))`)},

	{means: owner, Why: "the service, by its noun", after: startWith(` services?\b`)},
	{means: owner, Why: "the services of a loop", before: endsWith(`\bfor service in `)},
	{means: aggregate, Why: "a parent", before: endsWith("PARENT=|an id of its own, such as `")},
	{means: owner, Why: "the address of a client's options",
		in: in(`^pkg/client/|^services/goclient_test\.go$`), ident: ident(`[A-Z][a-z]+`),
		after: startWith(`(, Catalog| and Catalog|":|: (addr|"|%w|w\.))`)},
	{means: owner, Why: "that address", in: in(`^pkg/client/`), before: endsWith(`\bo\.`)},
	{means: owner, Why: "a connection of the client", in: in(`^pkg/client/client\.go$`), kind: code, ident: ident(`[a-z]+`)},
	{means: owner, Why: "the types of the owner's paths", in: in(`^clients/`), ident: ident(`[A-Z][a-z]+Paths`)},

	// In Go code, a package name means the owner. Any other identifier means the aggregate, except
	// for the identifiers of processes.
	{means: owner, Why: "a package clause", kind: code, before: endsWith(`^package `)},
	{means: owner, Why: "a process, its address or database",
		ident: ident(`(start|spawn|serve|startMuted|kill|stop)[A-Z]\w*|` +
			`\w*(URL|Addr|Host|Port|Restarts|Memory)|[a-z]+(Service|Services|Schema)|[A-Z]\w*ServiceAddr`)},
	{means: owner, Why: "a qualifier of the owner's package",
		in: in(`^(services/[^/]+_test\.go|services/[a-z]+/cmd/.*|cmd/dev/\w+\.go)$`), kind: code, ident: ident(`[a-z]+`),
		before: endsWith(`(^|[^.\w])`), after: startWith(`\.[A-Z]`)},
	{means: owner, Why: "the two services of migrations",
		in: in(`^migrations/migrations\.go$`), ident: ident(`[a-z]+|[A-Z][a-z]+`)},
	{means: owner, Why: "a service of migrations", before: endsWith(`\bmigrations\.`)},
	{means: aggregate, Why: "a type of aggregate in a help text",
		in: in(`^internal/operator/usage/`), before: endsWith(`such as |counters of the `)},
	{means: owner, Why: "variables of processes",
		in: in(`^cmd/dev/\w+\.go$|^internal/(walk|monitoring|operator)/|^deploy/.*\.go$` +
			`|^services/(alerts_live|collectoraway|trace|endpoint|session|panels|reconcile_full|fresh)_test\.go$`),
		kind: code, ident: ident(`[a-z]+`)},
	{means: aggregate, Why: "other identifiers of Go", in: in(`\.go$`), kind: code},

	// SQL, in Go and in migrations.
	{means: aggregate, Why: "the type of an aggregate",
		ident: ident(`[a-z]+`), before: endsWith(`(?i)aggregate_?type(\\?": ?|[" :=!]+|", )[\\"'\x60]*|` +
			`aggregate_type", Values: \[\]string\{"|Aggregate:? ?(!= |: )"|` +
			`gen_random_uuid\(\), '|kind: "|return "|--type |, \$2, '\w+', '|table\{"`)},
	{means: aggregate, Why: "a label with types of aggregates", ident: ident(`[a-z]+`), before: endsWith("`aggregate_type`: ")},
	{means: owner, Why: "a schema, by its table", ident: ident(`[a-z]+`), after: startWith(`\.[a-z]`)},
	{means: owner, Why: "a schema, by its clause",
		ident: ident(`[a-z]+`), before: endsWith(`(?i)schema[= "]+|search_path = |(schemaname|nspname|table_schema) IN \('`)},

	// Services, in sentences and literals.
	{means: aggregate, Why: "the topics by the type of their events", kind: literal, after: startWith(`": +("projects/|topics\.)`)},
	{means: aggregate, Why: "the topic's name in an expression", before: endsWith(`\(`), after: startWith(`\|engagement`)},
	{means: aggregate, Why: "an aggregate's id, row or counters", after: startWith(` (ids?|row|rows|[%]s|%q)\b`)},
	{means: aggregate, Why: "a noun with its determiner, in an anchor", before: endsWith(`[#-](a|the|each|one)-`)},
	{means: aggregate, Why: "a noun with its determiner", previous: ident(determiners)},
	{means: owner, Why: "the owner's client",
		in: in(`^clients/typescript/(package\.json|src/(client|mistakes|story)\.ts)$`), ident: ident(`[a-z]+`)},
	{means: aggregate, Why: "a function or type that its comment begins with",
		in: in(`\.go$`), kind: prose, before: endsWith(`^// `), after: startWith(` (is a|returns the)\b`)},
	{means: aggregate, Why: "a type of aggregate in a comment of proto",
		in: in(`\.proto$|^docs/(grpc|events)\.md$`), kind: prose, before: endsWith(`"`), after: startWith(`"`)},
	{means: owner, Why: "a command of the owner",
		after: startWith(` (outbox|epoch|events|erase|migrate|serve|version|health|paint)\b`)},
	{means: owner, Why: "the owner's configuration", before: endsWith(`_ADDR(": |=)["{]?\w*"?|usage: |docs/security\.md", "`)},
	{means: aggregate, Why: "the digests of an aggregate",
		in: in(`^internal/operator/(backfill|rebuilding|reconciliation)_test\.go$`), kind: literal},
	{means: aggregate, Why: "an aggregate's type and id",
		in: in(`^(pkg|internal/history)/`), after: startWith(`(/[a-z]\b| [a-z] [0-9])`)},
	{means: owner, Why: "an address", after: startWith(`:(8080|http)\b`)},
	{means: owner, Why: "a container, an image, a resource or a panel",
		in: in(`^(deploy|\.github|internal/(monitoring|command|telemetry|operator|walk|auth)|services/video/cmd)/` +
			`|^(docker-compose\.yml|Dockerfile|[a-z_]*test\.go)$`),
		ident: ident(`[a-z][a-z0-9_]*|[A-Z][a-z]+|[A-Z_]+`)},
	{means: owner, Why: "the name of a process",
		in: in(`^(services/[^/]+_test\.go|cmd/dev/.*)$`), kind: literal, before: endsWith(`"`), after: startWith(`"`)},
	{means: owner, Why: "a sentence about the owner",
		kind:  literal,
		after: startWith(`('s\b| (starts|ends|drains|dies|serves|says|owns|restarts|is|cannot|has|publishes|writes|and catalog|warns)\b|\.")`)},
	{means: owner, Why: "a process that a sentence names",
		kind: literal, before: endsWith(`\b(of|in|as|from|to|ask|asks|kill|stop|restart|Kill|Stop|Restart)[ -]`)},
	{means: owner, Why: "a sentence about the owner", kind: prose, ident: ident(`[a-z]+`)},
	{means: owner, Why: "a sentence that begins with the owner",
		in: in(`\.md$`), kind: prose, ident: ident(`[A-Z][a-z]+`), before: endsWith(`(^|[.:] |# |\| )`),
		after: startWith(`'s| [a-z]`)},
}

func in(pattern string) *regexp.Regexp        { return regexp.MustCompile(pattern) }
func ident(pattern string) *regexp.Regexp     { return regexp.MustCompile(`^(?:` + pattern + `)$`) }
func endsWith(pattern string) *regexp.Regexp  { return regexp.MustCompile(`(?:` + pattern + `)$`) }
func startWith(pattern string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + pattern + `)`) }
