package serve

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Optional is a member of a JSON merge patch (RFC 7396), which means three
// different things when it is absent (leave it), null (clear it) and a value
// (set it). A value of the wrong type is a *json.UnmarshalTypeError.
type Optional[T any] struct {
	Set   bool // the member was there
	Null  bool // and it was null
	Value T
}

// UnmarshalJSON is not called for an absent member, which so stays unset.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	*o = Optional[T]{Set: true, Null: bytes.Equal(data, []byte("null"))}
	if o.Null {
		return nil
	}
	if err := json.Unmarshal(data, &o.Value); err != nil {
		return &json.UnmarshalTypeError{Value: string(data[:1]), Type: reflect.TypeFor[T]()}
	}
	return nil
}
