package queue

import (
	"slices"
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

// What is left of the parts are the rows that the snapshot did not see.
func TestUnseenPartsAreLeft(t *testing.T) {
	t.Parallel()
	half := Cursor{xact: "5000", to: "7000", id: [16]byte{1}}
	for _, c := range []struct {
		low   TxSnapshot
		parts []Cursor
		want  []Cursor
	}{
		{"10:10:", []Cursor{cursor(3, 3), cursor(5, 9)}, nil},
		{"3:10:3", []Cursor{cursor(3, 3), cursor(4, 20)}, []Cursor{cursor(3, 3), cursor(10, 20)}},
		{"5000:6000:5000", []Cursor{cursor(1001, 5000)}, []Cursor{cursor(5000, 5000)}},
		{"5:10:5,7", []Cursor{cursor(3, 20)}, []Cursor{cursor(5, 5), cursor(7, 7), cursor(10, 20)}},
		{"1000:1000:", []Cursor{half}, []Cursor{half}},
		{"5000:6000:5000", []Cursor{half}, []Cursor{{xact: "5000", to: "5000", id: half.id}, cursor(6000, 7000)}},
	} {
		if got := c.low.unseen(c.parts); !slices.Equal(got, c.want) {
			t.Errorf("%s of %v: %v, want %v", c.low, c.parts, got, c.want)
		}
	}
}
