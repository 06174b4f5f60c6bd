package bounded

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// unsent is an error of pgx from before the statement was sent.
type unsent struct{}

func (unsent) Error() string     { return "not sent" }
func (unsent) SafeToRetry() bool { return true }

// Work is tried again for half a minute while the database is away, and not after any other error.
func TestTryAgain(t *testing.T) {
	t.Parallel()
	away, refused, other := &pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "42703"}, errors.New("no digest")
	for name, tc := range map[string]struct {
		lasts time.Duration // of the failures
		err   error
		want  error
		again bool
	}{
		"a restart":                       {10 * time.Second, away, nil, true},
		"an outage":                       {time.Hour, away, away, true},
		"a connection that is lost":       {time.Second, &pgconn.ConnectError{}, nil, true},
		"a read that gets no answer":      {time.Second, context.DeadlineExceeded, nil, true},
		"a column that is missing":        {time.Second, refused, refused, false},
		"two builds that do not fit":      {time.Second, other, other, false},
		"no failure":                      {0, nil, nil, false},
		"a session that a failover ended": {time.Second, pgconn.ErrConnClosed, nil, true},
		"a session of a former primary":   {time.Second, &pgconn.PgError{Code: "25006"}, nil, true},
		"a session that was idle":         {time.Second, &pgconn.PgError{Code: "57P05"}, nil, true},
		"a server without free sessions":  {time.Second, &pgconn.PgError{Code: "53300"}, nil, true},
		"a connection that was closed":    {time.Second, net.ErrClosed, nil, true},
		"a pooler that ends":              {time.Second, io.EOF, nil, true},
		"an answer that was cut off":      {time.Second, io.ErrUnexpectedEOF, nil, true},
		"a statement that was not sent":   {time.Second, unsent{}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, times := time.Now(), 0
				got, err := TryAgain(t.Context(), func(error) { times++ }, func() (int, error) {
					if time.Since(began) < tc.lasts {
						return 0, tc.err
					}
					return 7, nil
				})
				if !errors.Is(err, tc.want) || (err == nil) != (got == 7) || (times > 0) != tc.again {
					t.Errorf("%d, %v after %d retries", got, err, times)
				}
				if took := time.Since(began); took > outage+againPause.Cap || tc.want == away && took < outage { //nolint:errorlint // it is the case's
					t.Errorf("it took %s", took)
				}
			})
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	calls := 0
	_, err := TryAgain(ended, nil, func() (int, error) { calls++; return 0, away })
	if calls != 1 || !errors.Is(err, away) {
		t.Errorf("after the end of its context: %d calls, %v", calls, err)
	}
}
