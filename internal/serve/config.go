package serve

import (
	"flag"
	"net"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/command"
)

// Config is the configuration that all services have.
type Config struct {
	// DatabaseURL connects as the role of the service. Behind a transaction pooler it must have
	// default_query_exec_mode=exec.
	DatabaseURL string
	// ListenURL connects to the same database without a transaction pooler, for LISTEN. If
	// ListenURL is empty, LISTEN uses DatabaseURL. If ListenURL is empty and DatabaseURL leads
	// through a pooler, there is no LISTEN, and the relay and waiting readers poll.
	ListenURL string
	// Project is the Google Cloud project of the topics and subscriptions.
	Project string
	// PubSubEndpoint is a regional endpoint (host:port), because the order of a key holds within
	// one region only. If PubSubEndpoint is empty, the global endpoint is used.
	PubSubEndpoint string
	// Reflection lets every gRPC caller list the services and messages.
	Reflection bool
	// Admin is the listener of health, readiness and metrics. If Admin is nil, all three are on the
	// port of the API.
	Admin net.Listener
	// Auth says how callers prove who they are.
	Auth auth.Config
	// Limits bound the rates of users, and say which web pages of other origins may call.
	Limits Options
}

// ReadEnvironment sets the fields that come from environment variables. It reports missing and
// invalid variables to r.
func (c *Config) ReadEnvironment(r *command.Environment) {
	c.DatabaseURL, c.ListenURL = r.RequiredURL("DATABASE_URL"), r.URL("LISTEN_DATABASE_URL")
	c.Project, c.PubSubEndpoint = r.Project("GOOGLE_CLOUD_PROJECT"), r.HostPort("PUBSUB_ENDPOINT", "")
	r.HostPort("PUBSUB_EMULATOR_HOST", "") // the client library reads it, without a check
	c.Auth = auth.ReadConfig(r)
}

// Flags declares the flags of serve that set the other fields. local is the default of reflection.
func (c *Config) Flags(f *flag.FlagSet, local bool) {
	f.BoolVar(&c.Reflection, "reflection", local, "answer gRPC reflection; on by default in a local process, and in no other")
	f.UintVar(&c.Limits.UserRate, "user-rate", defaultUserRate,
		"how many requests a second each user may send to an instance, and twice as many at once after a pause; 0 is no limit")
	f.Var(&c.Limits.Origins, "cors-origin",
		"origins of the web pages that may call from a browser, such as https://app.example, separated by commas; without one, none may")
}
