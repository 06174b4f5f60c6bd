package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// listTimeout bounds go list, which may have modules to download.
const listTimeout = 5 * time.Minute

// The kinds of Go packages. A package in pkg/ is of the kind inLibrary. Any other package is of the
// kind inServices if a service's binary contains it. It is of the kind inCommands if only other
// binaries contain it. It is of the kind forTests if no binary contains it.
const (
	inServices = "Go: services and their parts"
	inLibrary  = "Go: library pkg/"
	inCommands = "Go: developers' commands"
	forTests   = "Go: tests and what only they use"
)

// goClasses are in the order of the report. Only the first two kinds are code that runs in
// production.
var goClasses = []string{inServices, inLibrary, inCommands, forTests}

// A goPackage is a package of the module. Its fields are those of go list -json.
type goPackage struct {
	ImportPath string   `json:"ImportPath"` //nolint:tagliatelle // go list's
	Name       string   `json:"Name"`       //nolint:tagliatelle // go list's
	Imports    []string `json:"Imports"`    //nolint:tagliatelle // go list's
}

// packagesOf returns the kind of each package of the module at dir, by the folder of the package. A
// package in pkg/ is of the kind inLibrary. The kind of another package depends on the binaries
// that import the package, directly or not.
func packagesOf(ctx context.Context, dir string) (map[string]string, error) {
	module, err := moduleOf(dir)
	if err != nil {
		return nil, err
	}
	packages, err := listPackages(ctx, dir)
	if err != nil {
		return nil, err
	}
	return kindsOfPackages(packages, module), nil
}

func listPackages(ctx context.Context, dir string) (packages []goPackage, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Name,Imports", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

func kindsOfPackages(packages []goPackage, module string) map[string]string {
	imports := map[string][]string{}
	services, commands := []string{}, []string{}
	for _, p := range packages {
		imports[p.ImportPath] = p.Imports
		switch folder := strings.TrimPrefix(p.ImportPath, module+"/"); {
		case p.Name != "main":
		case strings.HasPrefix(folder, "services/"):
			services = append(services, p.ImportPath)
		default:
			commands = append(commands, p.ImportPath)
		}
	}
	served, used := closure(services, imports), closure(commands, imports)
	kinds := map[string]string{}
	for name := range maps.Keys(imports) {
		folder := strings.TrimPrefix(name, module+"/")
		switch {
		case strings.HasPrefix(folder, "pkg/"):
			kinds[folder] = inLibrary
		case served[name]:
			kinds[folder] = inServices
		case used[name]:
			kinds[folder] = inCommands
		default:
			kinds[folder] = forTests
		}
	}
	return kinds
}

// closure returns the packages in from, and all packages that they import, directly or indirectly.
func closure(from []string, imports map[string][]string) map[string]bool {
	reached := map[string]bool{}
	for next := slices.Clone(from); len(next) > 0; {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		if !reached[name] {
			reached[name] = true
			next = append(next, imports[name]...)
		}
	}
	return reached
}
