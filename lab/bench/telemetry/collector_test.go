package telemetry

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Two resources with one and two spans are three spans; a message that is cut off has those
// before the cut.
func TestSpansAreCountedWithoutDecoding(t *testing.T) {
	t.Parallel()
	within := func(number protowire.Number, messages ...[]byte) (all []byte) {
		for _, m := range messages {
			all = protowire.AppendBytes(protowire.AppendTag(all, number, protowire.BytesType), m)
		}
		return all
	}
	span := within(5, []byte("GET"))
	one, two := within(2, within(2, span)), within(2, within(1, []byte("scope")), within(2, span, span))
	request := within(1, one, two)
	if n := count(request, 1, 2, 2); n != 3 {
		t.Errorf("%d spans, want 3", n)
	}
	if n := count(request[:len(request)-1], 1, 2, 2); n != 1 {
		t.Errorf("%d spans before the cut, want 1", n)
	}
}
