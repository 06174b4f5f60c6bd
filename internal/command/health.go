package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	defaultPort = 8080
	// healthTimeout is above the 2 s that the server gives its own checks.
	healthTimeout = 3 * time.Second
	// maxReason bounds the part of an answer that is repeated.
	maxReason = 1 << 10
)

// health asks the server of this machine whether it is ready, for container
// engines that can only run a command, in images that hold no other.
func (Service) health(ctx context.Context, getenv func(string) string, _ io.Writer) error {
	r := NewEnvironment(getenv)
	port := r.Int("PORT", defaultPort, 1, 65535)
	if err := r.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/readyz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// A transport of its own uses no proxy.
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	reason, err := io.ReadAll(io.LimitReader(response.Body, maxReason))
	return errors.Join(fmt.Errorf("not ready: %s: %s", response.Status, reason), err)
}
