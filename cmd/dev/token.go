package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/local/issuer"
	"example.com/lockstep/internal/walk"
	"example.com/lockstep/pkg/eventing"
)

// token prints a token for the running pair. Only the process of `make run` has the keys of the
// issuer, in its memory. So token asks the issuer in that process.
func token(ctx context.Context, c command.Call) error {
	flags := flag.NewFlagSet("token", flag.ContinueOnError)
	user := flags.String("user", "", "")
	admin := flags.Bool("admin", false, "")
	tenant := flags.String("tenant", eventing.DefaultTenant, "")
	at := flags.String("issuer", fmt.Sprintf("http://127.0.0.1:%d", issuerPort), "")
	if err := command.ParseFlags(flags, c.Args); err != nil {
		return err
	}
	id, err := uuid.Parse(*user)
	if err != nil {
		return command.Usagef("token needs --user UUID: the id of any user, such as %s", walk.User)
	}
	var roles []string
	if *admin {
		roles = append(roles, "admin")
	}
	signed, err := issuer.Ask(ctx, *at, *tenant, id, roles...)
	if err != nil {
		return fmt.Errorf("no token: is `make run` running? %w", err)
	}
	_, err = fmt.Fprintln(c.Out, signed)
	return err
}

// startIssuer starts the issuer. With --no-auth it starts nothing, and every caller may do
// everything.
func (p pair) startIssuer(all *parts) error {
	if p.noAuth {
		return nil
	}
	lis, err := p.listen(all, "the issuer of tokens", issuerPort)
	if err != nil {
		return err
	}
	if all.issuer, err = issuer.Start(lis); err == nil {
		all.atEnd(all.issuer.Close)
	}
	return err
}

// issuerURL returns the URL of the issuer. It is empty if every caller may do everything.
func (all *parts) issuerURL() string {
	if all.issuer == nil {
		return ""
	}
	return all.issuer.URL()
}

// token returns a token of the user, or "" if no token is needed.
func (all *parts) token(user uuid.UUID) (string, error) {
	if all.issuer == nil {
		return "", nil
	}
	return all.issuer.Mint(eventing.DefaultTenant, user)
}
