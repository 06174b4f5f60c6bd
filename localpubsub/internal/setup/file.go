// Package setup fills a local Pub/Sub from a file. The file lists projects with their schemas,
// topics and subscriptions, and faults.
//
//	projects:
//	  demo:
//	    schemas:
//	      order: {file: order.proto}      # or definition, with the text itself
//	    topics:
//	      orders: {schema: order}         # encoding: JSON, or BINARY, which is the default
//	      orders.dead: {}
//	    subscriptions:
//	      orders.billing:
//	        topic: orders
//	        filter: attributes.kind = "paid"
//	        ordering: true
//	        exactly_once: false
//	        ack_deadline: 30s
//	        retention: 168h
//	        retain_acked: true
//	        retry: {min: 1s, max: 60s}
//	        dead_letter: {topic: orders.dead, attempts: 5}
//	seed: 7
//	faults:
//	  - {kind: latency, delay: 5ms, mean: 20ms}
//
// A topic without a full name is in the project of the subscription. A setting that is absent has
// Pub/Sub's default.
package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/lockstep/localpubsub"
)

// maxFile bounds a file, in bytes.
const maxFile = 4 << 20

// File is the content of a setup file. Read has checked everything that can be checked without a
// server.
type File struct {
	Projects map[string]Project  `yaml:"projects"`
	Seed     uint64              `yaml:"seed"`
	Faults   []localpubsub.Fault `yaml:"faults"`
}

// Project has the resources of one project by their ids.
type Project struct {
	Schemas       map[string]Schema       `yaml:"schemas"`
	Topics        map[string]Topic        `yaml:"topics"`
	Subscriptions map[string]Subscription `yaml:"subscriptions"`
}

// Schema is a Protocol Buffer schema. Either Definition has the text of the schema, or File names
// the file with the text.
type Schema struct {
	Definition string `yaml:"definition"`
	File       string `yaml:"file"` // a path relative to the setup file
}

// Topic has the settings of a topic.
type Topic struct {
	Schema    string        `yaml:"schema"`
	Encoding  string        `yaml:"encoding"`
	Retention time.Duration `yaml:"retention"`
}

// Subscription has the settings of a subscription.
type Subscription struct {
	Topic       string        `yaml:"topic"`
	Filter      string        `yaml:"filter"`
	Ordering    bool          `yaml:"ordering"`
	ExactlyOnce bool          `yaml:"exactly_once"`
	AckDeadline time.Duration `yaml:"ack_deadline"`
	Retention   time.Duration `yaml:"retention"`
	RetainAcked bool          `yaml:"retain_acked"`
	Retry       *Retry        `yaml:"retry"`
	DeadLetter  *DeadLetter   `yaml:"dead_letter"`
}

// Retry bounds the pause between two deliveries of a returned message.
type Retry struct {
	Min time.Duration `yaml:"min"`
	Max time.Duration `yaml:"max"`
}

// DeadLetter names the topic for messages that were not acknowledged after Attempts delivery
// attempts.
type DeadLetter struct {
	Topic    string `yaml:"topic"`
	Attempts int32  `yaml:"attempts"`
}

// Read reads a setup file, and the schema files that it names. An unknown field or a value of the
// wrong type is an error that gives the line. A second document is an error, too.
func Read(name string) (File, error) {
	text, err := readBounded(name)
	if err != nil {
		return File{}, err
	}
	f, err := parse(text)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", name, err)
	}
	for project, p := range f.Projects {
		for id, s := range p.Schemas {
			if (s.Definition == "") == (s.File == "") {
				return File{}, fmt.Errorf("%s: projects.%s.schemas.%s: definition or file: one of them is needed", name, project, id)
			}
			if s.File == "" {
				continue
			}
			path := s.File
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(name), path)
			}
			definition, err := readBounded(path)
			if err != nil {
				return File{}, fmt.Errorf("%s: projects.%s.schemas.%s: file: %w", name, project, id, err)
			}
			p.Schemas[id] = Schema{Definition: string(definition)}
		}
	}
	return f, nil
}

func parse(text []byte) (f File, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return File{}, err
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return File{}, errors.New("it has a second document, or text that is not YAML after the first")
	}
	return f, nil
}

func readBounded(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // a file of the caller's choice, and relative to it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return text, err
}
