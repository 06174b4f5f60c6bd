package migrate

import (
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// roleSettings are the settings that the migrations give to the service's role, except its search_path.
var roleSettings = map[string]string{
	"statement_timeout": "15s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "15s",
	"synchronous_commit": "on", "default_transaction_isolation": "read committed",
	"jit": "off", "max_parallel_workers_per_gather": "0",
	"bytea_output": "hex", "intervalstyle": "postgres", "array_nulls": "on",
	"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3", "tcp_user_timeout": "60000",
}

// Configure changes cfg, which pgxpool.ParseConfig has returned. The sessions of a pool of cfg then have the
// settings of s.Role, although they connect as another role. The other role is a member of s.Role: see "A
// service that has tables already" in the package doc. The search_path of the sessions is the schema of s,
// and then the schemas in further, which have the service's own tables.
//
// The settings are parameters of the connection. A transaction pooler may refuse them or drop them. Behind such a
// pooler the pool connects as s.Role itself, without Configure.
func (s Schema) Configure(cfg *pgxpool.Config, further ...string) {
	path := []string{pgx.Identifier{s.Name}.Sanitize()}
	for _, name := range further {
		path = append(path, pgx.Identifier{name}.Sanitize())
	}
	maps.Copy(cfg.ConnConfig.RuntimeParams, roleSettings)
	cfg.ConnConfig.RuntimeParams["search_path"] = strings.Join(path, ", ")
}
