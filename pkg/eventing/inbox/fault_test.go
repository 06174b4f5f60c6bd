package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestFaultOf(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return fmt.Errorf("apply: %w", &pgconn.PgError{Code: code}) }
	for name, c := range map[string]struct {
		err  error
		want fault
	}{
		"serialization failure": {state("40001"), outage},
		"deadlock":              {state("40P01"), outage},
		"lock timeout":          {state("55P03"), locked},
		"statement timeout":     {state("57014"), timedOut},
		"admin shutdown":        {state("57P01"), outage},
		"too many connections":  {state("53300"), outage},
		"connection failure":    {state("08006"), outage},
		"read-only failover":    {state("25006"), outage},
		"deadline":              {fmt.Errorf("q: %w", context.DeadlineExceeded), outage},
		"connection lost":       {fmt.Errorf("q: %w", io.ErrUnexpectedEOF), outage},
		"check violation":       {state("23514"), eventFault},
		"bad value":             {state("22P02"), eventFault},
		"missing table":         {state("42P01"), outage},
		"missing column":        {state("42703"), outage},
		"missing schema":        {state("3F000"), outage},
		"ambiguous column":      {state("42702"), eventFault},
		"pooled statement":      {state("26000"), outage},
		"missing privilege":     {state("42501"), outage},
		"idle in transaction":   {state("25P03"), timedOut},
		"slow handler":          {handlerError{fmt.Errorf("q: %w", context.DeadlineExceeded)}, timedOut},
		"thrown by a handler":   {handlerError{orPanic(io.ErrUnexpectedEOF, nil)}, outage},
		"panic":                 {handlerError{orPanic("bug", nil)}, eventFault},
		"handler's own":         {errors.New("no such kind"), eventFault},
	} {
		if got := faultOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
