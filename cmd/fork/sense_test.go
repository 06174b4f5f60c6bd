package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/lockstep/cmd/fork/repo"
)

// TestForkSaysWhatItMeans searches a fork for places in which one of two words is likely to
// stand for the other: here one word names the aggregate and its owner.
func TestForkSaysWhatItMeans(t *testing.T) {
	t.Parallel()
	wrong := confused(theirs)
	for _, f := range read(t, forked(t)) {
		text := unwrapped(string(f.content))
		for _, at := range wrong.FindAllStringIndex(text, -1) {
			t.Errorf("%s: %q", f.name, text[max(0, at[0]-40):min(len(text), at[1]+40)])
		}
	}
}

// TestConfused: the patterns find each confusion, and no sentence that is right.
func TestConfused(t *testing.T) {
	t.Parallel()
	wrong := confused(words{aggregate: "product", owner: "inventory", reader: "storefront"})
	for _, text := range []string{
		"the product service", "asks the services product", "a product with users", "A product without an instance",
		"a product that may sleep", "a product of an earlier release", "the newest inventory first", "another tenant's inventory, and",
		"an engagement of a user and inventory.", "fetches that inventory from", "the n-th inventory", "by user\n// and inventory. Writes",
		"(\"inventory\" or \"engagement\")", "aggregate_type is \"inventory\"", "PARENT=inventory", "an id of its own, such as `inventory`.",
		"for service in product storefront;", "await product.POST(", "const { product, storefront } =", "The base URL of product, such",
		"client of product and storefront", "brings up product and storefront", "an archived inventory, is", "startswith(topic, \"inventory.\")", "ProductPaths", "Options{Product: addr}", "// inventory is a product of",
	} {
		if !wrong.MatchString(unwrapped(text)) {
			t.Errorf("%q passes", text)
		}
	}
	for _, text := range []string{
		"the inventory service", "a product without a title", "the newest product first", "the events that inventory publishes",
		"PARENT=product", "for service in inventory storefront;", "await inventory.POST(", "asks inventory by user",
	} {
		if found := wrong.FindString(unwrapped(text)); found != "" {
			t.Errorf("%q is found in %q", found, text)
		}
	}
}

// confused matches text in which one of the words is likely to stand for the other.
func confused(w words) *regexp.Regexp {
	return regexp.MustCompile(strings.NewReplacer("AGG", w.aggregate, "Agg", repo.Title(w.aggregate), "OWN", w.owner, "READER", w.reader).Replace(
		`\bAGG services?\b|\bservices? AGG\b(?:[^_]|$)` +
			`|\b[Aa]n? AGG (with users|without (an instance|rows)|that (is not for|is restored|has users|may sleep)|of an earlier release)` +
			`|\b(whole|newest|flat|legal|n-th|user,? (and|then)|[a-z]+'s) OWN\b([^'/.\w-]|\.(\s|$)|$)` +
			`|\bthat OWN (again|begins|from)\b|\buntil that OWN\b|"OWN" or "|type is "OWN"` +
			`|PARENT=OWN|\ban id of its own, such as .OWN|\bfor service in AGG\b` +
			`|\bawait AGG\.[A-Z]|\{ AGG, READER|\bbase URL of AGG\b|\bclient of AGG\b|AggPaths|Options\{Agg:` +
			`|\bup AGG and READER|\b(archived|deleted|published) OWN\b|startswith\(topic, "OWN\.` +
			`|// OWN (is an? AGG|returns the names)`))
}

// wraps are the ends of lines within a sentence, with the signs of comments.
var wraps = regexp.MustCompile(`[ \t]*\n[ \t]*(?:(?://|--|#)[ \t]+)?`)

func unwrapped(text string) string { return wraps.ReplaceAllString(text, " ") }

// services match the name of a service in a path, and those of a loop.
var services = regexp.MustCompile(`(?:^|[\s"(.]|\./|\.\./)services/([a-z]+)/|\bfor service in ([a-z][a-z ]+);`)

// addition matches the file of a service that the change guide adds.
var addition = regexp.MustCompile("new file, `services/([a-z]+)/")

// TestServicesOfAForkExist: each service that a file of the fork names has a folder, or is one that
// the change guide adds.
func TestServicesOfAForkExist(t *testing.T) {
	t.Parallel()
	dir := forked(t)
	found, added := map[string]string{}, map[string]bool{}
	for _, f := range read(t, dir) {
		for _, m := range addition.FindAllStringSubmatch(string(f.content), -1) {
			added[m[1]] = true
		}
		if examples.MatchString(f.name) {
			continue
		}
		for _, m := range services.FindAllStringSubmatch(string(f.content), -1) {
			for service := range strings.FieldsSeq(m[1] + m[2]) {
				found[service] = f.name
			}
		}
	}
	for service, file := range found {
		if added[service] {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, "services", service)); err != nil || !info.IsDir() {
			t.Errorf("%s names the service %s: %v", file, service, err)
		}
	}
	for _, want := range []string{theirs.owner, theirs.reader} {
		if found[want] == "" {
			t.Errorf("no file names the service %s", want)
		}
	}
}

// read returns the texts of a fork, but for the rules and the cases of fork itself.
func read(t *testing.T, dir string) (files []file) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == ".git" {
			return filepath.SkipDir
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil || entry.IsDir() || strings.HasPrefix(filepath.ToSlash(relative), "cmd/fork/") {
			return err
		}
		f, err := readFile(dir, filepath.ToSlash(relative))
		if !isBinary(f.content) {
			files = append(files, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
