package auth

import (
	_ "embed"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"

	"example.com/lockstep/internal/command"
)

const googleIssuer = "https://accounts.google.com"

// Config is the configuration of an Authenticator. New refuses the zero value, because a service is
// open only where its configuration says so.
type Config struct {
	// Issuer is the OpenID Connect issuer of the end users' tokens. Audience is the audience that
	// such a token must have.
	Issuer, Audience string
	// TenantClaim is the path of the claim that names a user's tenant. If it is empty, there is
	// only one tenant, eventing.DefaultTenant.
	TenantClaim string
	// ServiceIssuer signs the identities of other services. ServiceAudience is this service's own
	// URL.
	ServiceIssuer, ServiceAudience string
	// Services are the emails of the accounts that may call as services of the system. If Services
	// is empty, no caller is a service.
	Services []string
	// Local says that the process runs on a developer's machine. A local process without an Issuer
	// is open, and a local issuer on loopback needs no TLS.
	Local bool
	// Open says that everybody may read and write everything.
	Open bool
}

// ReadConfig reads the environment, and reports faults to r.
func ReadConfig(r *command.Environment) Config {
	c := Config{
		Issuer: r.String("AUTH_ISSUER", ""), Audience: r.String("AUTH_AUDIENCE", ""),
		TenantClaim:     r.String("AUTH_TENANT_CLAIM", ""),
		ServiceIssuer:   r.String("AUTH_SERVICE_ISSUER", googleIssuer),
		ServiceAudience: r.String("AUTH_SERVICE_AUDIENCE", ""),
		Services:        accounts(r.String("AUTH_SERVICES", "")),
		Local:           r.Local(), Open: readOpen(r),
	}
	c.checkUsers(r)
	c.checkTenants(r)
	c.checkServices(r)
	return c
}

// accounts splits a list of emails at its commas.
func accounts(list string) (emails []string) {
	for email := range strings.SplitSeq(list, ",") {
		if email = strings.TrimSpace(email); email != "" {
			emails = append(emails, email)
		}
	}
	return emails
}

// readOpen accepts only the word true, because "1" or "yes" could be meant for another variable.
func readOpen(r *command.Environment) bool {
	value := r.String("EVERYBODY_MAY_WRITE", "")
	if value != "" && value != "true" {
		r.Refuse("EVERYBODY_MAY_WRITE", "must be true, or absent")
	}
	return value == "true"
}

func (c Config) checkTenants(r *command.Environment) {
	if c.Issuer == "" && c.TenantClaim != "" {
		r.Refuse("AUTH_TENANT_CLAIM", "needs AUTH_ISSUER")
	}
	if strings.HasPrefix(c.TenantClaim, "user_metadata") {
		r.Refuse("AUTH_TENANT_CLAIM", "must not be a claim that users write themselves, such as Supabase's user_metadata")
	}
}

func (c Config) checkUsers(r *command.Environment) {
	switch {
	case c.Issuer == "" && c.Audience != "":
		r.Refuse("AUTH_AUDIENCE", "needs AUTH_ISSUER")
	case c.Issuer == "" && !c.Local && !c.Open:
		r.Refuse("AUTH_ISSUER", errNoIssuer)
	case c.Issuer == "":
	case c.Open:
		r.Refuse("EVERYBODY_MAY_WRITE", "contradicts AUTH_ISSUER")
	default:
		r.Required("AUTH_AUDIENCE")
		if err := checkURL(c.Issuer, c.Local); err != nil {
			r.Refuse("AUTH_ISSUER", err.Error())
		}
	}
}

func (c Config) checkServices(r *command.Environment) {
	if err := checkURL(c.ServiceIssuer, c.Local); err != nil {
		r.Refuse("AUTH_SERVICE_ISSUER", err.Error())
	}
	if slices.ContainsFunc(c.Services, func(account string) bool { return !strings.Contains(account, "@") }) {
		r.Refuse("AUTH_SERVICES", "must be emails of service accounts, separated by commas")
	}
	switch {
	case len(c.Services) > 0 && c.ServiceAudience == "":
		r.Refuse("AUTH_SERVICE_AUDIENCE", "is required with AUTH_SERVICES: the URL of this service")
	case len(c.Services) == 0 && c.ServiceAudience != "":
		r.Refuse("AUTH_SERVICES", "is required with AUTH_SERVICE_AUDIENCE: emails of service accounts")
	case len(c.Services) > 0 && c.ServiceAudience == c.Audience && c.ServiceIssuer == c.Issuer:
		// Otherwise one token could be an end user's and a service's at once.
		r.Refuse("AUTH_SERVICE_AUDIENCE", "must differ from AUTH_AUDIENCE where the issuer is the same")
	}
}

const errNoIssuer = "is required: the OpenID Connect issuer of the end users. " +
	"Only a process that runs locally needs none, or one with EVERYBODY_MAY_WRITE=true"

// checkURL returns an error unless the address is a plain URL that begins with https. Without TLS,
// anybody on the network path could answer in place of the issuer. In a local process, checkURL
// also accepts a URL on loopback that begins with http.
func checkURL(address string, local bool) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("must be a URL like https://issuer.example")
	case u.Scheme == "https", u.Scheme == "http" && local && isLoopback(u.Hostname()):
		return nil
	}
	return errors.New("must begin with https")
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Usage describes the variables of ReadConfig, for the usage texts of the services.
//
//go:embed usage.txt
var Usage string
