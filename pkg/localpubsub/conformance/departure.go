package conformance

import "maps"

// Departure is a known difference between a server and the documentation.
type Departure struct {
	// Why says what the server does instead.
	Why string
	// Sometimes says that the server does as documented at other times.
	Sometimes bool
	// Harmful says that trying it breaks the server for the other behaviours: it
	// is left out of runs.
	Harmful bool
}

// because says that d is why a server departs from the behaviours named.
func because(d Departure, names ...string) map[string]Departure {
	all := make(map[string]Departure)
	for _, name := range names {
		all[name] = d
	}
	return all
}

func together(groups ...map[string]Departure) map[string]Departure {
	all := make(map[string]Departure)
	for _, group := range groups {
		maps.Copy(all, group)
	}
	return all
}
