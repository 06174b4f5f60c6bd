package rebuild_test

import (
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/rebuild"
)

// The writing of a page passes its time limit, as it does while a checkpoint keeps the disk busy. The rebuild fills
// the page again, and goes on.
func TestAPageThatIsWrittenSlowlyIsFilledAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 150)
	f.exec(t, `CREATE SEQUENCE writes;
		CREATE FUNCTION wait_once() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		  IF nextval('app.writes') = 1 THEN PERFORM pg_sleep(60); END IF;
		  RETURN NEW;
		END $$`)
	pages := 0
	f.at = func(step string) {
		switch step {
		case "begin filling type one":
			f.exec(t, `CREATE TRIGGER wait_once BEFORE INSERT ON one_shadow FOR EACH ROW EXECUTE FUNCTION wait_once()`)
			f.pageLimit = time.Second
		case "fill one":
			pages++
		}
	}
	f.run(t)
	if pages < 3 { // the page that waited, and the second one again
		t.Errorf("%d pages were filled: none has waited", pages)
	}
	f.phase(t, rebuild.Done)
	f.same(t, "one", "two")
}
