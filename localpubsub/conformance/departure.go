package conformance

import "maps"

// Departure is a known difference between a server and the documentation.
type Departure struct {
	// Why describes the server's behaviour.
	Why string
	// If Sometimes is true, the server behaves as documented in some runs.
	Sometimes bool
	// If Harmful is true, the behaviour is not run, because its test breaks the server for the
	// other behaviours.
	Harmful bool
}

// because returns a list in which each of the named behaviours has the departure d.
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
