// Package schemas holds the Pub/Sub schemas of the topics. cmd/schema makes them from proto/.
// Terraform reads the same files.
package schemas

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *_events.proto
var files embed.FS

// File is the name of the file with a topic's schema.
func File(topic string) string { return strings.ReplaceAll(topic, ".", "_") + ".proto" }

// Definition returns the schema of the messages of a topic, such as video.events. The schema is
// source text of Protocol Buffers, for the encoding BINARY. Definition returns an empty text for a
// topic without a schema.
func Definition(topic string) (string, error) {
	text, err := files.ReadFile(File(topic))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("schema of %s: %w", topic, err)
	}
	return string(text), nil
}
