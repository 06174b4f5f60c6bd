package fakegcp

// text is the string that a value is, else "".
func text(value any) string {
	s, _ := value.(string)
	return s
}

// number is the JSON number that a value is, else 0.
func number(value any) float64 {
	n, _ := value.(float64)
	return n
}

// object is the value behind names, one in the other; nil where there is none.
func object(value any, names ...string) fields {
	f, _ := value.(fields)
	for _, name := range names {
		f, _ = f[name].(fields)
	}
	return f
}

// objects are the elements of a list that are objects.
func objects(value any) []fields {
	list, _ := value.([]any)
	found := make([]fields, 0, len(list))
	for _, element := range list {
		if f, ok := element.(fields); ok {
			found = append(found, f)
		}
	}
	return found
}
