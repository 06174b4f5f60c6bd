package reads

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/services/catalog"
)

// everyone is the caller of all reads.
var everyone = auth.Principal{Kind: auth.Everyone, Tenant: eventing.DefaultTenant}

func position(id uuid.UUID, version int64) consistency.Position {
	return consistency.Position{AggregateType: "video", AggregateID: id.String(), Epoch: eventing.FirstEpoch, Version: version}
}

func videoToken(id uuid.UUID, version int64) string {
	return consistency.Token{Positions: []consistency.Position{position(id, version)}}.String()
}

// token returns a token that names the given number of videos, from video i on, at their present
// versions.
func (h *readHarness) token(i, named int) (string, error) {
	var all consistency.Token
	for n := range named {
		v := h.videos[(i+n)%len(h.videos)]
		all.Positions = append(all.Positions, position(v.id, v.version.Load()))
	}
	merged, err := consistency.Merge(all)
	return merged.String(), err
}

// shown is the part of an answer that the bench reads.
type shown struct {
	Version int64          `json:"version"`
	Source  catalog.Source `json:"source"`
}

// get sends a REST request to the instance in the other process.
func (h *readHarness) get(ctx context.Context, path string, header http.Header) (a shown, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.other.Addr+path, nil)
	if err != nil {
		return a, err
	}
	req.Header = header
	resp, err := h.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("GET %s: %s: %s", path, resp.Status, strings.TrimSpace(string(body)))
	}
	err = json.Unmarshal(body, &a)
	return a, err
}
