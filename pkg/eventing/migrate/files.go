package migrate

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
)

// The library's migrations.
var (
	// Outbox has the tables of pkg/eventing/outbox.
	//go:embed outbox/*.sql
	Outbox embed.FS
	// Inbox has the tables of pkg/eventing/inbox.
	//go:embed inbox/*.sql
	Inbox embed.FS
	// Operator has the table of pkg/eventing/operator/audit.
	//go:embed operator/*.sql
	Operator embed.FS

	//go:embed role/*.sql
	role embed.FS
)

// The numbers of the library's migrations begin at firstOfLibrary. The numbers of a service's own migrations
// begin at firstOfService, and the library's numbers end before it. See the package doc.
const (
	firstOfLibrary = 100
	firstOfService = 1000
)

// folder has all migrations of a schema in the form in which goose reads them. They are in one
// directory, under the names that they have in this schema.
type folder map[string]file

type file struct {
	source embed.FS
	path   string
	number int64
}

// Open implements fs.FS.
func (f folder) Open(name string) (fs.File, error) {
	at, found := f[name]
	if !found {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return at.source.Open(at.path)
}

// Glob implements fs.GlobFS.
func (f folder) Glob(pattern string) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		matched, err := path.Match(pattern, name)
		if err != nil {
			return nil, err
		}
		if matched {
			names = append(names, name)
		}
	}
	return names, nil
}

func (f folder) numbers() (numbers []int64) {
	for _, at := range f {
		numbers = append(numbers, at.number)
	}
	return numbers
}

// files returns all migrations of s. It returns an error if a number is used twice, or is outside
// of the range that the package doc gives to the library or to the service.
func (s Schema) files() (folder, error) {
	all := folder{}
	for _, part := range append([]embed.FS{role}, s.Parts...) {
		err := all.add(part, func(number int64) (int64, error) {
			if earlier, found := s.Earlier[number]; found {
				return earlier, nil
			}
			return number, nil
		})
		if err != nil {
			return nil, err
		}
	}
	err := all.add(s.Own, func(number int64) (int64, error) {
		if number >= firstOfService || number < firstOfLibrary && len(s.Earlier) > 0 {
			return number, nil
		}
		return 0, fmt.Errorf("its number is not the service's, which begin at %d", firstOfService)
	})
	return all, err
}

// add adds the files of part. here maps the number in a file's name to the number of the file in
// this schema.
func (f folder) add(part embed.FS, here func(number int64) (int64, error)) error {
	return fs.WalkDir(part, ".", func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		_, title, _ := strings.Cut(entry.Name(), "_")
		number, err := goose.NumericComponent(entry.Name())
		if err == nil {
			number, err = here(number)
		}
		if err != nil {
			return fmt.Errorf("migration %s: %w", at, err)
		}
		for _, other := range f {
			if other.number == number {
				return fmt.Errorf("migrations %s and %s: both have the number %d", other.path, at, number)
			}
		}
		f[fmt.Sprintf("%05d_%s", number, title)] = file{part, at, number}
		return nil
	})
}
