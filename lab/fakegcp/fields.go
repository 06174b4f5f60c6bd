package fakegcp

// text returns value if it is a string. Otherwise it returns "".
func text(value any) string {
	s, _ := value.(string)
	return s
}

// number returns value if it is a JSON number. Otherwise it returns 0.
func number(value any) float64 {
	n, _ := value.(float64)
	return n
}

// object returns the object at the path names within value. It returns nil if there is no object.
func object(value any, names ...string) fields {
	f, _ := value.(fields)
	for _, name := range names {
		f, _ = f[name].(fields)
	}
	return f
}

// objects returns those elements of a list that are objects.
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
