package main

// determiners stand before a noun: "a video" is an aggregate, and "asks video" its owner.
const determiners = `a|an|the|each|one|two|no|every|any|another|other|its|their|his|her|this|these|those|same|new|old|deleted|unknown|` +
	`locked|erased|synthetic|popular|single|bad|long|given|such|present|next|last|first|second|third|young|own|whose|user|tenant|own|` +
	`stored|changed|largest|types|neither`

// contexts are those of this repository.
var contexts = []rule{
	// Names that are fixed: paths, packages, tables, environment.
	{owner, "the module of a service", nil, "", nil, endsWith(`services/|cmd/|migrations/|\./`), startWith(`[/"' )*\x60\]]|$`), nil},
	{owner, "the owner's host", nil, "", nil, nil, startWith(`\.([Ee]xample|internal)\b`), nil},
	{aggregate, "events are those of an aggregate", nil, "", nil, nil, startWith(`[./_-]events\b`), nil},
	{owner, "the owner among the words", in(`^cmd/fork/words\.go$`), "", nil, endsWith(`owner: +"`), nil, nil},
	{owner, "a board or file of a service", nil, "", nil, endsWith(`boards[/_]`), nil, nil},
	{owner, "a service's resources of Terraform", nil, "", nil, nil, startWith(`(_[a-z]+)?\.tf\b`), nil},
	{owner, "the owner's API", nil, "", nil, nil, startWith(`[./](v1|replication)\b`), nil},
	{owner, "the descriptor of the owner's API", nil, code, nil, endsWith(`\bFile_`), startWith(`_(v1|replication)_`), nil},
	{owner, "the alias of the owner's API", nil, "", ident(`\w+v1`), nil, startWith(`v1`), nil},
	{aggregate, "the file of the aggregate, or of a call's answer", nil, "", nil, nil, startWith(`(_test|_service|_api_test)?\.(go|json|proto)\b`), nil},
	{owner, "the owner's environment", nil, "", ident(`[A-Z]+_SERVICE_ADDR|[A-Z]+_PORT|BUILT_[A-Z]+|GIVEN_[A-Z]+`), nil, nil, nil},
	{owner, "the owner's roles", nil, "", ident(`[a-z]+_(service|owner)`), nil, nil, nil},
	{owner, "the owner's image", in(`^(\.github|deploy)/`), "", ident(`[A-Z]+`), nil, nil, nil},
	{aggregate, "columns and tables with the aggregate's name", nil, "", ident(`[a-z]+_(id|ids|projection\w*|counters?\w*|user_\w*|events)|(by|of|recount|count)_\w+`), nil, nil, nil},

	{aggregate, "an event, or an error's reason", nil, "", ident(`\w*([a-z](Created|Updated|Deleted)|_(CREATED|UPDATED|DELETED|NOT_FOUND))`), nil, nil, nil},

	// Go: a package is the owner's, an identifier the aggregate's but for those of processes.
	{owner, "a package clause", nil, code, nil, endsWith(`^package `), nil, nil},
	{owner, "a process, its address or database", nil, "",
		ident(`(start|spawn|serve|startMuted|kill|stop)[A-Z]\w*|\w*(URL|Addr|Host|Port|Restarts|Memory)|[a-z]+(Service|Services|Schema)|[A-Z]\w*ServiceAddr`), nil, nil, nil},
	{owner, "a qualifier of the owner's package", in(`^(services/[^/]+_test\.go|services/[a-z]+/cmd/.*|cmd/dev/\w+\.go)$`), code, ident(`[a-z]+`), endsWith(`(^|[^.\w])`), startWith(`\.[A-Z]`), nil},
	{owner, "the two services of migrations", in(`^migrations/migrations\.go$`), "", ident(`[a-z]+|[A-Z][a-z]+`), nil, nil, nil},
	{owner, "a service of migrations", nil, code, nil, endsWith(`\bmigrations\.`), nil, nil},
	{owner, "the live page's process", in(`^cmd/dev/(live\.go|scenario/)`), code, ident(`[A-Z][a-z]+`), nil, nil, nil},
	{owner, "variables of processes", in(`^cmd/dev/\w+\.go$|^cmd/dev/scenario/observer\.go$|^internal/(walk|monitoring|operator)/|^deploy/` +
		`|^services/(alerts_live|collectoraway|trace|endpoint|session|panels|reconcile_full|fresh)_test\.go$`), code, ident(`[a-z]+`), nil, nil, nil},
	{aggregate, "other identifiers of Go", in(`\.go$`), code, nil, nil, nil, nil},

	// SQL, in Go and in migrations.
	{aggregate, "the type of an aggregate", nil, "", ident(`[a-z]+`), endsWith(`(?i)aggregate_?type(\\?": ?|[" :=!]+|", )[\\"'\x60]*|Aggregate:? ?(!= |: )"|gen_random_uuid\(\), '|kind: "|return "|--type |, \$2, '\w+', '|table\{"`), nil, nil},
	{aggregate, "a label with types of aggregates", nil, "", ident(`[a-z]+`), endsWith("`aggregate_type`: "), nil, nil},
	{owner, "a schema, by its table", nil, "", ident(`[a-z]+`), nil, startWith(`\.[a-z]`), nil},
	{owner, "a schema, by its clause", nil, "", ident(`[a-z]+`), endsWith(`(?i)schema[= "]+|search_path = |(schemaname|nspname) IN \('`), nil, nil},

	// Services, in sentences and literals.
	{aggregate, "the topics by the type of their events", nil, literal, nil, nil, startWith(`": +"projects/`), nil},
	{aggregate, "the topic's name in an expression", nil, "", nil, endsWith(`\(`), startWith(`\|engagement`), nil},
	{aggregate, "an aggregate's id, row or counters", nil, "", nil, nil, startWith(` (ids?|row|rows|[%]s|%q)\b`), nil},
	{aggregate, "a noun with its determiner, in an anchor", nil, "", nil, endsWith(`[#-](a|the|each|one)-`), nil, nil},
	{aggregate, "a noun with its determiner", nil, "", nil, nil, nil, ident(determiners)},
	{owner, "a command of the owner", nil, "", nil, nil, startWith(` (outbox|epoch|events|erase|migrate|serve|version|health|paint)\b`), nil},
	{owner, "the owner's configuration", nil, "", nil, endsWith(`_ADDR(": |=)["{]?\w*"?|usage: |docs/security\.md", "`), nil, nil},
	{aggregate, "the digests of an aggregate", in(`^internal/operator/(backfill|rebuilding|reconciliation)_test\.go$|^internal/operator/(backfill|reconcile)\.go$`), literal, nil, nil, nil, nil},
	{aggregate, "an aggregate's type and id", in(`^(pkg|internal/history)/`), "", nil, nil, startWith(`(/[a-z]\b| [a-z] [0-9])`), nil},
	{owner, "an address", nil, "", nil, nil, startWith(`:(8080|http)\b`), nil},
	{owner, "a container, an image, a resource or a panel", in(`^(deploy|\.github|internal/(monitoring|command|telemetry|operator|walk|auth)|services/video/cmd)/|^(docker-compose\.yml|Dockerfile|[a-z_]*test\.go)$`), "", ident(`[a-z][a-z0-9_]*|[A-Z][a-z]+|[A-Z_]+`), nil, nil, nil},
	{owner, "the name of a process", in(`^(services/[^/]+_test\.go|cmd/dev/.*)$`), literal, nil, endsWith(`"`), startWith(`"`), nil},
	{owner, "a sentence about the owner", nil, literal, nil, nil, startWith(`('s\b| (starts|ends|drains|dies|serves|says|owns|restarts|is|cannot|has|publishes|writes|and catalog|warns)\b|\.")`), nil},
	{owner, "a process that a sentence names", nil, literal, nil, endsWith(`\b(of|in|as|from|to|ask|asks|kill|stop|restart|Kill|Stop|Restart)[ -]`), nil, nil},
	{aggregate, "other literals of Go", nil, literal, nil, nil, nil, nil},
	{owner, "a sentence about the owner", nil, prose, ident(`[a-z]+`), nil, nil, nil},
	{owner, "a sentence that begins with the owner", in(`\.md$`), prose, ident(`[A-Z][a-z]+`), endsWith(`(^|[.:] |# |\| )`), startWith(`'s| [a-z]`), nil},
}
