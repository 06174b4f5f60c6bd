package main

import (
	"io"
	"strings"
	"testing"
)

// TestAFaultInProtoIsShown: buf prints a fault of a file on its standard output, and the error of the
// command has it.
func TestAFaultInProtoIsShown(t *testing.T) {
	t.Parallel()
	tools(t)
	c := planned(t, "../..", shapes[1])
	c.files["proto/video/v1/video_service.proto"] = c.text("proto/video/v1/video_service.proto") +
		"\nmessage Faulty {\n  reserved 1;\n  string one = 1;\n}\n"
	if err := c.complete(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "reserved field number") {
		t.Errorf("a field with a reserved number: %v", err)
	}
}
