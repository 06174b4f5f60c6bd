package main

import "fmt"

// This file has the values of fields in generated tests.

// Sample is a value of the field in JSON. Another n gives another value, except for bool.
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

// ProtoSample is the same value as Sample in Go, for a message.
func (f Field) ProtoSample(n int) string {
	if f.IsTime() {
		return fmt.Sprintf("timestamppb.New(time.Date(2026, 3, 4, 5, 6, %d, 0, time.UTC))", n)
	}
	return f.Sample(n)
}

// OfVersion is a value of the field that differs between versions. ofTime is the function that
// makes a time of a version.
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
