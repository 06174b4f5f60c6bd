package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// pack is a package of the API, which has services, or of events, which has none.
type pack struct {
	name     protoreflect.FullName
	services []protoreflect.ServiceDescriptor
	// shared has the top-level messages that are neither the request nor the answer of a method.
	shared []protoreflect.MessageDescriptor
	// enums has all top-level enums.
	enums []protoreflect.EnumDescriptor
}

// load compiles all definitions below dir. It returns the packages that have services, and those that have
// none, each sorted by name.
func load(ctx context.Context, dir string) (apis, events []*pack, err error) {
	var names []string
	err = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(name) == ".proto" {
			name, err = filepath.Rel(dir, name)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, nil, err
	}
	byName := map[protoreflect.FullName]*pack{}
	for _, file := range files {
		p := byName[file.Package()]
		if p == nil {
			p = &pack{name: file.Package()}
			byName[file.Package()] = p
		}
		p.add(file)
	}
	for _, p := range byName {
		p.finish()
		if len(p.services) > 0 {
			apis = append(apis, p)
		} else {
			events = append(events, p)
		}
	}
	if len(apis) == 0 {
		return nil, nil, fmt.Errorf("%s has no definition of a service", dir)
	}
	slices.SortFunc(apis, inOrder)
	slices.SortFunc(events, inOrder)
	return apis, events, nil
}

func inOrder(a, b *pack) int { return cmp.Compare(a.name, b.name) }

func (p *pack) add(file protoreflect.FileDescriptor) {
	for i := range file.Services().Len() {
		p.services = append(p.services, file.Services().Get(i))
	}
	for i := range file.Messages().Len() {
		p.shared = append(p.shared, file.Messages().Get(i))
	}
	for i := range file.Enums().Len() {
		p.enums = append(p.enums, file.Enums().Get(i))
	}
}

// finish removes the requests and answers of p's methods from p.shared. Then finish sorts
// p.services, p.shared and p.enums by full name.
func (p *pack) finish() {
	own := map[protoreflect.FullName]bool{}
	for _, s := range p.services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			own[m.Input().FullName()], own[m.Output().FullName()] = true, true
		}
	}
	p.shared = slices.DeleteFunc(p.shared, func(m protoreflect.MessageDescriptor) bool { return own[m.FullName()] })
	slices.SortFunc(p.services, byFullName[protoreflect.ServiceDescriptor])
	slices.SortFunc(p.shared, byFullName[protoreflect.MessageDescriptor])
	slices.SortFunc(p.enums, byFullName[protoreflect.EnumDescriptor])
}

func byFullName[D protoreflect.Descriptor](a, b D) int {
	return cmp.Compare(a.FullName(), b.FullName())
}
