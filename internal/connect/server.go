package connect

import (
	"crypto/tls"
	"net/netip"
	"strings"

	"github.com/jackc/pgx/v5"
)

// UnverifiedServer returns the first host of a Postgres URL that is beyond this machine and
// its private network, and to which a connection may be made without a check of the
// server's certificate and name: any host on the way could answer in its place. It
// returns "" if there is none, and for a URL that cannot be parsed, which OpenPool refuses.
func UnverifiedServer(url string) (host string) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return ""
	}
	if unverified(config.Host, config.TLSConfig) {
		return config.Host
	}
	// Further hosts, and the plain connection that sslmode=prefer falls back to.
	for _, fallback := range config.Fallbacks {
		if unverified(fallback.Host, fallback.TLSConfig) {
			return fallback.Host
		}
	}
	return ""
}

// unverified also holds for verify-ca: for that pgx sets InsecureSkipVerify and checks the
// certificate without its name.
func unverified(host string, config *tls.Config) bool {
	if config != nil && !config.InsecureSkipVerify {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast()
	}
	// A name without a dot is of this machine or of its containers, a path is a socket.
	return !strings.HasPrefix(host, "/") && strings.Contains(host, ".")
}
