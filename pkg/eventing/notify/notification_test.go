package notify

import (
	"maps"
	"testing"
)

// Instances of two releases notify each other during a rollout, so the text is a contract between releases.
func TestTheTextOfANotificationIsAContract(t *testing.T) {
	t.Parallel()
	var n Notification
	n.add("video/1")
	for text, want := range map[string]Notification{"awk/WA": n, "*": {everything: true}, "": {}} {
		if got := want.String(); got != text {
			t.Errorf("%+v is written as %q, not as %q", want, got, text)
		}
		if got := parse(text); got.everything != want.everything || !maps.Equal(got.hashes, want.hashes) {
			t.Errorf("%q is read as %+v, not as %+v", text, got, want)
		}
	}
}
