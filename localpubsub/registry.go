package localpubsub

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"example.com/lockstep/localpubsub/internal/resource"
)

// A registry holds the resources of one kind by name. A method holds the registry's lock only
// during one operation on the map. So the caller of a method may hold any other lock.
type registry[T comparable] struct {
	mu     sync.RWMutex
	byName map[string]T
}

func (r *registry[T]) get(name string) (value T, there bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	value, there = r.byName[name]
	return value, there
}

// put adds a resource under a name. It returns an error if the name is taken.
func (r *registry[T]) put(name string, value T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byName[name]; taken {
		return resource.Taken(name)
	}
	if r.byName == nil {
		r.byName = make(map[string]T)
	}
	r.byName[name] = value
	return nil
}

// remove removes a resource and reports whether it was there. It leaves another resource that has the
// name meanwhile.
func (r *registry[T]) remove(name string, value T) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	present, there := r.byName[name]
	if !there || present != value {
		return false
	}
	delete(r.byName, name)
	return true
}

// page returns one page of the names of a project's resources, and the token of the next page. project has
// the form projects/ID.
func (r *registry[T]) page(project string, req resource.PageRequest) (names []string, next string, err error) {
	if err := resource.CheckProject(project, "project"); err != nil {
		return nil, "", err
	}
	return resource.Page(r.names(project), req)
}

func (r *registry[T]) names(project string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(r.byName)), func(name string) bool {
		return !strings.HasPrefix(name, project+"/")
	})
}

// all returns the resources of all projects.
func (r *registry[T]) all() []T {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.byName))
}

// drain removes and returns all resources.
func (r *registry[T]) drain() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Collect(maps.Values(r.byName))
	r.byName = nil
	return all
}
