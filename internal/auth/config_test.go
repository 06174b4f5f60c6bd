package auth

import (
	"bytes"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing"
)

func read(vars map[string]string) (Config, error) {
	r := command.NewEnvironment(func(name string) string { return vars[name] })
	c := ReadConfig(r)
	return c, r.Err()
}

var (
	cloud  = map[string]string{"AUTH_ISSUER": "https://issuer.example/", "AUTH_AUDIENCE": "app"}
	laptop = map[string]string{"PUBSUB_EMULATOR_HOST": "localhost:8085"}
)

func and(all, more map[string]string) map[string]string {
	all = maps.Clone(all)
	maps.Copy(all, more)
	return all
}

func TestConfigurations(t *testing.T) {
	t.Parallel()
	users := Config{Issuer: "https://issuer.example/", Audience: "app", ServiceIssuer: googleIssuer}
	services := users
	services.ServiceAudience, services.Services = "https://video.example", []string{"a@x", "b@x"}
	one := services
	one.ServiceIssuer = users.Issuer
	onLaptop := Config{Issuer: "http://localhost:8082", Audience: "lockstep", ServiceIssuer: googleIssuer, Local: true}
	for name, tc := range map[string]struct {
		vars map[string]string
		want Config
	}{
		"users":         {cloud, users},
		"services":      {and(cloud, map[string]string{"AUTH_SERVICE_AUDIENCE": "https://video.example", "AUTH_SERVICES": "a@x, b@x"}), services},
		"one issuer":    {and(cloud, map[string]string{"AUTH_SERVICE_AUDIENCE": "https://video.example", "AUTH_SERVICES": "a@x,b@x", "AUTH_SERVICE_ISSUER": users.Issuer}), one},
		"open":          {map[string]string{"EVERYBODY_MAY_WRITE": "true"}, Config{ServiceIssuer: googleIssuer, Open: true}},
		"laptop":        {laptop, Config{ServiceIssuer: googleIssuer, Local: true}},
		"laptop's own":  {and(laptop, map[string]string{"AUTH_ISSUER": "http://localhost:8082", "AUTH_AUDIENCE": "lockstep"}), onLaptop},
		"other account": {and(cloud, map[string]string{"AUTH_SERVICE_ISSUER": "https://sa.example"}), Config{Issuer: users.Issuer, Audience: "app", ServiceIssuer: "https://sa.example"}},
	} {
		got, err := read(tc.vars)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if _, err := New(t.Context(), got, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: New: %v", name, err)
		}
	}
}

func TestFaultsNameTheirVariable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		vars  map[string]string
		fault string
	}{
		"nothing":               {nil, "AUTH_ISSUER is required"},
		"Cloud Run, emulator":   {and(laptop, map[string]string{"K_SERVICE": "video"}), "AUTH_ISSUER is required"},
		"job, emulator":         {and(laptop, map[string]string{"CLOUD_RUN_JOB": "x"}), "AUTH_ISSUER is required"},
		"worker pool, emulator": {and(laptop, map[string]string{"CLOUD_RUN_WORKER_POOL": "x"}), "AUTH_ISSUER is required"},
		"no audience":           {map[string]string{"AUTH_ISSUER": "https://i.example"}, "AUTH_AUDIENCE is required"},
		"Google, no audience":   {map[string]string{"AUTH_ISSUER": googleIssuer}, "AUTH_AUDIENCE is required"},
		"tenants alone":         {and(laptop, map[string]string{"AUTH_TENANT_CLAIM": "tenant_id"}), "AUTH_TENANT_CLAIM needs AUTH_ISSUER"},
		"tenants of their own":  {map[string]string{"AUTH_ISSUER": "https://i.example", "AUTH_AUDIENCE": "a", "AUTH_TENANT_CLAIM": "user_metadata.tenant"}, "AUTH_TENANT_CLAIM must not"},
		"audience alone":        {and(laptop, map[string]string{"AUTH_AUDIENCE": "app"}), "AUTH_AUDIENCE needs AUTH_ISSUER"},
		"both":                  {and(cloud, map[string]string{"EVERYBODY_MAY_WRITE": "true"}), "EVERYBODY_MAY_WRITE contradicts"},
		"open?":                 {map[string]string{"EVERYBODY_MAY_WRITE": "s3cret"}, "EVERYBODY_MAY_WRITE must be true"},
		"no scheme":             {and(cloud, map[string]string{"AUTH_ISSUER": "s3cret.example"}), "AUTH_ISSUER must be a URL"},
		"password":              {and(cloud, map[string]string{"AUTH_ISSUER": "https://u:s3cret@issuer.example"}), "AUTH_ISSUER must be a URL"},
		"query":                 {and(cloud, map[string]string{"AUTH_ISSUER": "https://issuer.example?s3cret"}), "AUTH_ISSUER must be a URL"},
		"fragment":              {and(cloud, map[string]string{"AUTH_ISSUER": "https://issuer.example#s3cret"}), "AUTH_ISSUER must be a URL"},
		"no URL":                {and(cloud, map[string]string{"AUTH_ISSUER": "https://issuer.example/%s3cret"}), "AUTH_ISSUER must be a URL"},
		"plain text":            {and(cloud, map[string]string{"AUTH_ISSUER": "http://127.0.0.1:8082"}), "AUTH_ISSUER must begin with https"},
		"plain text, afar":      {and(laptop, and(cloud, map[string]string{"AUTH_ISSUER": "http://s3cret.example"})), "AUTH_ISSUER must begin with https"},
		"services' issuer":      {and(cloud, map[string]string{"AUTH_SERVICE_ISSUER": "http://s3cret.example"}), "AUTH_SERVICE_ISSUER must begin with https"},
		"a service's name":      {and(cloud, map[string]string{"AUTH_SERVICES": "a@x, s3cret", "AUTH_SERVICE_AUDIENCE": "https://video.example"}), "AUTH_SERVICES must be emails"},
		"no service's audience": {and(cloud, map[string]string{"AUTH_SERVICES": "s3cret@x"}), "AUTH_SERVICE_AUDIENCE is required"},
		"no services":           {and(cloud, map[string]string{"AUTH_SERVICE_AUDIENCE": "https://s3cret.example"}), "AUTH_SERVICES is required"},
		"users are services": {and(cloud, map[string]string{"AUTH_SERVICE_ISSUER": "https://issuer.example/", "AUTH_SERVICE_AUDIENCE": "app", "AUTH_SERVICES": "a@x"}),
			"AUTH_SERVICE_AUDIENCE must differ"},
	} {
		_, err := read(tc.vars)
		if err == nil || !strings.HasPrefix(err.Error(), tc.fault) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\nAUTH_SERVICE") {
			t.Errorf("%s: %v, want %q, and no value", name, err, tc.fault)
		}
	}
}

func TestTheUsageNamesEachVariable(t *testing.T) {
	t.Parallel()
	ReadConfig(command.NewEnvironment(func(name string) string {
		platform := strings.HasPrefix(name, "CLOUD_RUN_") || name == "K_SERVICE" || name == "PUBSUB_EMULATOR_HOST"
		if !platform && !strings.Contains(Usage, "  "+name+" ") {
			t.Errorf("the usage lacks %s", name)
		}
		return ""
	}))
}

// New checks too: a Config made without an environment must not open a service.
func TestOpenServicesSaySo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config Config
		log    string
	}{
		"operator's word": {Config{Open: true}, "level=WARN msg=\"EVERYBODY_MAY_WRITE"},
		"laptop":          {Config{Local: true}, "level=INFO msg=\"open to every caller"},
		"zero":            {Config{}, ""},
		"no audience":     {Config{Issuer: "https://i.example", Local: true}, ""},
		"audience alone":  {Config{Audience: "app"}, ""},
		"both":            {Config{Issuer: "https://i.example", Audience: "app", Open: true}, ""},
	} {
		var log bytes.Buffer
		a, err := New(t.Context(), tc.config, slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (tc.log != "") || !strings.Contains(log.String(), tc.log) {
			t.Errorf("%s: %v, log %q", name, err, log.String())
		}
		if err != nil {
			continue
		}
		p, err := a.Principal(t.Context(), http.Header{"Authorization": {"Basic x"}})
		if p != (Principal{Kind: Everyone, Tenant: eventing.DefaultTenant}) || err != nil || a.Run(t.Context()) != nil {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}
