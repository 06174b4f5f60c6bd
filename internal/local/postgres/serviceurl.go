package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// passwordTime bounds the setting of a password, including retries.
	passwordTime = 30 * time.Second
	// concurrentUpdate is Postgres's error code for two sessions that change
	// one role at the same time.
	concurrentUpdate = "XX000"
)

// ServiceURL returns the URL with which role connects. It is the administrator's URL with another
// user and, unless database is empty, another database.
//
// If the administrator needs a password, the role needs one too. ServiceURL then sets a password
// that is derived from the administrator's. All callers for the same cluster thus get the same URL,
// even if they call repeatedly or at the same time. If the administrator has no password (trust),
// ServiceURL changes nothing. The role must exist.
func ServiceURL(ctx context.Context, adminURL, database, role string) (string, error) {
	u, err := parse(adminURL)
	if err != nil {
		return "", err
	}
	pool, err := pgxpool.ParseConfig(adminURL)
	if err != nil {
		return "", fmt.Errorf("administrator's database URL: %w", err)
	}
	config := pool.ConnConfig
	u.User = url.User(role)
	if config.Password != "" { // may also come from PGPASSWORD or a password file
		password := derivePassword(config.Password, role)
		if err := setPassword(ctx, config, role, password); err != nil {
			return "", fmt.Errorf("set password of role %s: %w", role, err)
		}
		u.User = url.UserPassword(role, password)
	}
	if database != "" {
		u.Path = "/" + database
	}
	return u.String(), nil
}

// Connect opens one connection. The URL may have the settings of a pool, such as pool_max_conns, which
// a server would refuse.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config.ConnConfig)
}

// parse parses the administrator's URL. It removes the parameters user, password and dbname,
// because they would override parts of the URL. It moves the value of dbname to the URL's path. It also
// removes search_path, because the services find their schemas by the search_path of their roles.
func parse(adminURL string) (*url.URL, error) {
	if !strings.HasPrefix(adminURL, "postgres://") && !strings.HasPrefix(adminURL, "postgresql://") {
		return nil, errors.New("administrator's database URL: " +
			"want postgres://user:password@host:port/database, not the keyword=value form")
	}
	u, err := url.Parse(adminURL)
	if err != nil {
		return nil, errors.New("administrator's database URL: malformed") // the cause would quote the password
	}
	query := u.Query()
	if name := query.Get("dbname"); name != "" {
		u.Path = "/" + name
	}
	for _, name := range []string{"user", "password", "dbname", "search_path"} {
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	return u, nil
}

// derivePassword returns a password in hexadecimal, which needs no escaping in SQL.
func derivePassword(adminPassword, role string) string {
	mac := hmac.New(sha256.New, []byte(adminPassword))
	mac.Write([]byte(role))
	return hex.EncodeToString(mac.Sum(nil))
}

func setPassword(ctx context.Context, config *pgx.ConnConfig, role, password string) error {
	ctx, cancel := context.WithTimeout(ctx, passwordTime)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	statement := fmt.Sprintf(`ALTER ROLE %s PASSWORD '%s'`, pgx.Identifier{role}.Sanitize(), password)
	contention := backoff.Policy{Base: 20 * time.Millisecond, Cap: 500 * time.Millisecond}
	for range contention.Attempts(ctx) {
		_, err = conn.Exec(ctx, statement)
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != concurrentUpdate {
			return err
		}
	}
	return err
}
