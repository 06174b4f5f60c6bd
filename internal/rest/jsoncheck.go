package rest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"example.com/lockstep/internal/problem"
)

// MaxElements bounds the members of one JSON object and the elements of one array. Over gRPC it
// bounds the elements of all repeated fields of a request together.
const MaxElements = 100

// checkJSON returns the faults of body as a value of the type of into. encoding/json alone would
// stop at the first mistake, take names in any case, keep the last of repeated names, and write
// U+FFFD for half a surrogate pair. Some types, such as a time, decode themselves. If such a value
// is wrong, encoding/json cannot say where it is.
func checkJSON(body []byte, into any) []problem.Field {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return []problem.Field{{Field: "body", Detail: "must not be empty"}}
	case !utf8.Valid(body):
		return []problem.Field{{Field: "body", Detail: "must be UTF-8"}}
	}
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return []problem.Field{{Field: "body", Detail: "must be one JSON value: " + where(err)}}
	}
	t := reflect.TypeOf(into).Elem()
	if string(raw) == "null" {
		// Decoding null would change nothing, so null would act like an absent body.
		return []problem.Field{{Field: "body", Detail: "must be " + describe(t) + ", not null"}}
	}
	c := checker{}
	c.value("", raw, t)
	return c.fields
}

func where(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%s at byte %d", syntax, syntax.Offset)
	}
	return err.Error()
}

// checker collects faults. It only ever sees valid JSON, so the errors of its decoders
// cannot occur.
type checker struct{ fields problem.Violations }

func (c *checker) blame(path, detail string) {
	if path == "" {
		path = "body"
	}
	c.fields.Require(false, path, detail)
}

func (c *checker) value(path string, raw json.RawMessage, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Struct && raw[0] == '{' && !decodesItself(t):
		c.object(path, raw, t)
	case t.Kind() == reflect.Slice && raw[0] == '[' && !decodesItself(t):
		c.array(path, raw, t.Elem())
	default:
		c.leaf(path, raw, t)
	}
}

func (c *checker) object(path string, raw json.RawMessage, t reflect.Type) {
	types := memberTypes(t)
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token()
	for members := 1; dec.More(); members++ {
		if members > MaxElements {
			c.blame(path, fmt.Sprintf("must not have more than %d members", MaxElements))
			return
		}
		token, _ := dec.Token()
		name := token.(string)
		var member json.RawMessage
		_ = dec.Decode(&member)
		at := strings.TrimPrefix(path+"."+name, ".")
		switch memberType, known := types[name]; {
		case !known:
			c.blame(at, "is not a known field")
		case seen[name]:
			c.blame(at, "must not be given twice")
		default:
			c.value(at, member, memberType)
		}
		seen[name] = true
	}
}

func (c *checker) array(path string, raw json.RawMessage, elem reflect.Type) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token()
	for i := 0; dec.More(); i++ {
		if i == MaxElements {
			c.blame(path, fmt.Sprintf("must not have more than %d elements", MaxElements))
			return
		}
		var item json.RawMessage
		_ = dec.Decode(&item)
		c.value(fmt.Sprintf("%s[%d]", path, i), item, elem)
	}
}

func (c *checker) leaf(path string, raw json.RawMessage, t reflect.Type) {
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		if halvesPair(raw) {
			c.blame(path, "must not have half of a surrogate pair")
		}
		return
	}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		t = mismatch.Type
	}
	c.blame(path, "must be "+describe(t))
}

// halvesPair reports whether valid JSON has an escape for half of a surrogate pair without the
// other half.
func halvesPair(raw json.RawMessage) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return false
		}
		raw = raw[i:]
		unit, size := escaped(raw)
		if utf16.IsSurrogate(unit) {
			second, further := escaped(raw[size:])
			if utf16.DecodeRune(unit, second) == utf8.RuneError {
				return true
			}
			size += further
		}
		raw = raw[size:]
	}
}

// escaped returns the UTF-16 unit and the length of the escape at the beginning of valid JSON. The unit is 0
// if the escape has no unit, or if there is no escape.
func escaped(raw json.RawMessage) (unit rune, size int) {
	const short, long = len(`\n`), len(`\u0000`)
	if !bytes.HasPrefix(raw, []byte(`\u`)) {
		return 0, short
	}
	n, _ := strconv.ParseUint(string(raw[short:long]), 16, 16) // valid JSON has four digits there
	return rune(n), long
}

// memberTypes maps the JSON name of each field of t to the type of the field. The case of a name
// counts, unlike in encoding/json.
func memberTypes(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		types[name] = f.Type
	}
	return types
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func describe(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return "a time as in RFC 3339"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("an integer of at most %d bits", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a valid value" // the name of a Go type would be no help to a client
}
