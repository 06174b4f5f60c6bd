package issuer

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

const (
	// askTime bounds the request for a token.
	askTime = 5 * time.Second
	// maxAnswer bounds the body of the request for a token and the body of its answer, in bytes.
	maxAnswer = 16 << 10
)

// Ask asks the issuer at address for a token of the user of the tenant with these roles. The issuer
// runs in another process of this machine.
func Ask(ctx context.Context, address, tenant string, user uuid.UUID, roles ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	form := url.Values{"user": {user.String()}, "tenant": {tenant}, "role": roles}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+tokenPath, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

func (i *Issuer) answerToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxAnswer)
	user, err := uuid.Parse(r.PostFormValue("user"))
	if err != nil {
		http.Error(w, "user: want a UUID", http.StatusBadRequest)
		return
	}
	tenant := cmp.Or(r.PostFormValue("tenant"), eventing.DefaultTenant)
	token, err := i.Mint(tenant, user, r.PostForm["role"]...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, token)
}

// local refuses a request whose Host header is not a name of this machine. Otherwise a page in a
// browser could make its own name lead to loopback, and reach the issuer under that name.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback()) {
			next.ServeHTTP(w, r)
			return
		}
		http.Error(w, "for this machine only", http.StatusForbidden)
	})
}
