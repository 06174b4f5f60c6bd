package rest

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Optional is a member of a JSON merge patch (RFC 7396). Absent, null and a value mean
// three different things: leave it, clear it, set it. A value of the wrong type is a
// *json.UnmarshalTypeError.
type Optional[T any] struct {
	Set   bool // the member was there
	Null  bool // and it was null
	Value T
}

// UnmarshalJSON is not called for an absent member, which therefore stays unset.
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
