package conformance

import "maps"

// Departure is a known difference between a server and the documentation.
type Departure struct {
	// Why describes the server's behaviour.
	Why string
	// Sometimes means that the server sometimes does as documented.
	Sometimes bool
	// Harmful means that the behaviour is left out of runs, because testing it
	// breaks the server for the other behaviours.
	Harmful bool
}

// because returns d as the departure of each of the named behaviours.
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
