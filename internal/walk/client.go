package walk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/backoff"
)

// Client calls the REST APIs of both services. It sends Token, unless Token is empty.
type Client struct {
	http.Client

	Token string
}

// Answer holds the fields of any answer, including a problem, that a step needs.
type Answer struct {
	ID      uuid.UUID `json:"video_id"`
	Version int64     `json:"version"`
	Token   string    `json:"consistency_token"`
	Title   string    `json:"title"`
	Source  string    `json:"source"`
	Detail  string    `json:"detail"`

	Status int `json:"-"` // 0: there was no answer
}

// Call returns the answer, whatever its status.
func (c *Client) Call(ctx context.Context, method, url, body string, header http.Header) (a Answer, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	maps.Copy(r.Header, header)
	response, err := c.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.Status = response.StatusCode
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("%s %s: %s: %w", method, url, response.Status, err)
	}
	return a, nil
}

// Get returns the answer to a GET, if its status is OK. The caller closes its body.
func (c *Client) Get(ctx context.Context, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.Do(r)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body.Close()
		err = errors.New(response.Status)
	}
	return response, err
}

// AwaitReady returns when the service at the base URL url is ready. It fails after readyTime.
func AwaitReady(ctx context.Context, service, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		response, err := new(Client).Get(ctx, url+"/readyz")
		if err == nil {
			response.Body.Close()
			return nil
		}
		if !backoff.Sleep(ctx, pollInterval, nil) {
			return fmt.Errorf("%s is not ready: %w", service, err)
		}
	}
}
