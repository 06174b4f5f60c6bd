package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestIsOutage(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return fmt.Errorf("apply: %w", &pgconn.PgError{Code: code}) }
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"serialization failure": {state("40001"), true},
		"deadlock":              {state("40P01"), true},
		"lock timeout":          {state("55P03"), true},
		"statement timeout":     {state("57014"), true},
		"admin shutdown":        {state("57P01"), true},
		"too many connections":  {state("53300"), true},
		"connection failure":    {state("08006"), true},
		"read-only failover":    {state("25006"), true},
		"deadline":              {fmt.Errorf("q: %w", context.DeadlineExceeded), true},
		"connection lost":       {fmt.Errorf("q: %w", io.ErrUnexpectedEOF), true},
		"check violation":       {state("23514"), false},
		"bad value":             {state("22P02"), false},
		"missing table":         {state("42P01"), false},
		"missing privilege":     {state("42501"), false},
		"handler's own":         {errors.New("no such kind"), false},
	} {
		if got := isOutage(c.err); got != c.want {
			t.Errorf("%s: outage = %v, want %v", name, got, c.want)
		}
	}
}
