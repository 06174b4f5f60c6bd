package operator

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/connect"
)

// needs are the connections that a subcommand needs besides the connection to the database.
type needs struct {
	pubsub bool
	// owner is the environment variable with the gRPC address of the owner.
	owner string
	// session prepares each new database session. Only the rebuild subcommands set it. They connect
	// as the owner of the tables, because a rebuild changes tables.
	session func(context.Context, *pgx.Conn) error
}

// connect reads the variables, and makes the connections once the database answers.
func (s *invocation) connect(ctx context.Context, n needs) (err error) {
	var owner, project, endpoint string
	if n.owner != "" {
		s.env.Required(n.owner)
		owner = s.env.HostPort(n.owner, "")
	}
	if n.pubsub {
		project, endpoint = s.env.Project("GOOGLE_CLOUD_PROJECT"), s.env.HostPort("PUBSUB_ENDPOINT", "")
		s.env.HostPort("PUBSUB_EMULATOR_HOST", "") // the client library reads it, without a check
	}
	url := s.env.RequiredURL("DATABASE_URL")
	if err := s.env.Err(); err != nil {
		return err
	}
	if err := connect.AwaitDatabase(ctx, url, func(err error) { fmt.Fprintln(s.Err, "waiting for the database:", err) }); err != nil {
		return err
	}
	if n.session == nil {
		s.db, err = connect.OpenPool(ctx, url)
	} else {
		s.db, err = connect.OwnerPool(ctx, url, n.session)
	}
	if err != nil {
		return err
	}
	s.atEnd(func() error { s.db.Close(); return nil })
	if n.pubsub {
		if s.pubsub, err = connect.NewPubSub(ctx, project, connect.PubSubOptions{Endpoint: endpoint}); err != nil {
			return err
		}
		s.atEnd(s.pubsub.Close)
	}
	if n.owner != "" {
		s.ownerAddr = owner
		if s.owner, err = connect.Dial(owner); err != nil {
			return err
		}
		s.atEnd(s.owner.Close)
	}
	return nil
}

// atEnd registers end, to be called when the subcommand has returned. The function that was
// registered last is called first.
func (s *invocation) atEnd(end func() error) { s.ends = append(s.ends, end) }
