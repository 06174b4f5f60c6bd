package queue

import (
	"strconv"
	"strings"
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// TestNoStatementComparesAllWithAll reads the plans that sessions keep: a join that
// compares each row of one side with each of the other has a join filter.
func TestNoStatementComparesAllWithAll(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	conn, err := pg.Pool(t, pg.URL).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	run := func(sql string) []string {
		t.Helper()
		results, err := conn.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		var lines []string
		for _, row := range results[len(results)-1].Rows {
			lines = append(lines, string(row[0]))
		}
		return lines
	}
	for name, sql := range map[string]string{
		"fresh": claimNewEvents, "scan": claimPage, "retry": claimRetries, "settle": settle, "settle around": settleAroundLocks, "renew": renew,
	} {
		parameters := 0
		for n := 1; strings.Contains(sql, "$"+strconv.Itoa(n)); n++ {
			parameters = n
		}
		nulls := strings.TrimSuffix(strings.Repeat("NULL, ", parameters), ", ")
		plan := run(`BEGIN; ` + genericPlan + `; PREPARE s AS ` + sql + `; EXPLAIN EXECUTE s(` + nulls + `)`)
		run(`ROLLBACK; DEALLOCATE s`)
		for _, line := range plan {
			if strings.Contains(line, "Join Filter") {
				t.Errorf("%s:\n%s", name, strings.Join(plan, "\n"))
				break
			}
		}
	}
}
