package main

import (
	"fmt"
	"strings"
)

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

// ofVersion has a Go expression for a value of each kind, which depends on the variable version.
var ofVersion = map[string]string{
	"string": `fmt.Sprint("version ", version)`, "bool": "version%2 == 1", "timestamp": "TIME(version)",
	"int32": "int32(version)", "int64": "version",
}

// OfVersion returns the expression of ofVersion for the field. ofTime is the name of the function that
// makes a time from a version.
func (f Field) OfVersion(ofTime string) string {
	return strings.Replace(ofVersion[f.Kind], "TIME", ofTime, 1)
}
