package serve

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// defaultUserRate is the default of Options.UserRate. It is far above the rate of an application's requests
// for one person, and a small part of the rate that an instance serves, so that one user cannot crowd out
// the others.
const defaultUserRate = 100

// Options are the limits of a service that its operator chooses. The zero value does not limit
// the rate of a user, and lets no page of another origin call the service.
type Options struct {
	// UserRate is how many requests a second each user may send to this instance. After a pause,
	// twice as many may come at once. At most 20 requests of a user are under way at once. If
	// UserRate is zero, neither limit applies.
	UserRate uint
	// Origins are the web pages whose scripts may call the service from a browser.
	Origins Origins
}

// Origins are origins of web pages, in the form in which a browser sends them.
type Origins []string

// String returns the list in the form that Set takes.
func (o *Origins) String() string { return strings.Join(*o, ",") }

// Set takes origins that are separated by commas. It refuses the wildcard, because a page of an
// unknown origin has no reason to call. It refuses an origin without TLS, because any host on the
// way could change its page. On loopback TLS is not required, because no other host is on the way.
func (o *Origins) Set(list string) error {
	var origins Origins
	for origin := range strings.SplitSeq(list, ",") {
		origin = strings.TrimSpace(origin)
		u, err := url.Parse(origin)
		switch {
		case err != nil || u.Host == "" || strings.Contains(origin, "*"), !isSent(origin, u):
			return fmt.Errorf("%q is no origin: it must be as a browser sends it, like https://app.example", origin)
		case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
			origins = append(origins, origin)
		default:
			return errors.New("must begin with https, except on localhost")
		}
	}
	*o = origins
	return nil
}

// isSent reports whether a browser sends the origin of u in this form: in lower case, in ASCII, and without the
// port that the scheme has by default. An origin in another form would never match.
func isSent(origin string, u *url.URL) bool {
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	inASCII := !strings.ContainsFunc(origin, func(c rune) bool { return c > '~' })
	return u.Scheme+"://"+u.Host == origin && strings.ToLower(origin) == origin && inASCII &&
		u.Port() != usual && !strings.HasSuffix(u.Host, ":")
}

func isLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }
