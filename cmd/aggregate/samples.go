package main

import "fmt"

// This file has the values of fields for the generated tests.

// Sample returns a value of the field in JSON. Different n give different values, except for bool.
func (f Field) Sample(n int) string {
	switch f.Kind {
	case "string":
		return fmt.Sprintf(`"%s %d"`, f.Name, n)
	case "bool":
		return fmt.Sprint(n%2 == 1)
	case "timestamp":
		return fmt.Sprintf(`"2026-03-04T05:06:0%dZ"`, n)
	}
	return fmt.Sprint(n)
}

// ProtoSample returns the value of Sample as a Go expression for a field of a message.
func (f Field) ProtoSample(n int) string {
	if f.IsTime() {
		return fmt.Sprintf("timestamppb.New(time.Date(2026, 3, 4, 5, 6, %d, 0, time.UTC))", n)
	}
	return f.Sample(n)
}

// OfVersion returns a Go expression for a value of the field. The value depends on the variable
// version. ofTime is the name of the function that makes a time from a version.
func (f Field) OfVersion(ofTime string) string {
	switch f.Kind {
	case "string":
		return `fmt.Sprint("version ", version)`
	case "bool":
		return "version%2 == 1"
	case "timestamp":
		return ofTime + "(version)"
	case "int32":
		return "int32(version)"
	}
	return "version"
}
