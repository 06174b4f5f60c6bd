package conformance

import "maps"

// Departure is a known difference between a server and the documentation.
type Departure struct {
	// Why describes the server's behaviour.
	Why string
	// Sometimes means that the server does as documented at other times.
	Sometimes bool
	// Harmful means that testing it breaks the server for the other behaviours:
	// it is left out of runs.
	Harmful bool
}

// because returns d as the departure of each behaviour named.
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
