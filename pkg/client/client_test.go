package client_test

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"

	"example.com/lockstep/pkg/client"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	token := func(context.Context) (string, error) { return "t", nil }
	for want, o := range map[string]client.Options{
		"Video":   {Video: "localhost", Catalog: "localhost:8081"},
		"Catalog": {Video: "localhost:8080"},
		"TLS":     {Video: "127.0.0.1:8080", Catalog: "catalog.example.org:443", Token: token},
	} {
		if c, err := client.New(o); err == nil || !strings.Contains(err.Error(), "client: "+want+":") {
			t.Errorf("%+v: %v, %v, want an error that names %s", o, c, err, want)
		}
	}
	for _, o := range []client.Options{
		{Video: "[::1]:8080", Catalog: "localhost:8081", Token: token},
		{Video: "video.example.org:443", Catalog: "catalog.example.org:443", Token: token, TLS: &tls.Config{MinVersion: tls.VersionTLS12}},
		{Video: "video:8080", Catalog: "catalog:8080"},
	} {
		c, err := client.New(o)
		if err != nil {
			t.Errorf("%+v: %v", o, err)
			continue
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAForeignTokenIsNotKept(t *testing.T) {
	t.Parallel()
	c, err := client.New(client.Options{Video: "localhost:1", Catalog: "localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Keep("not a token"); err == nil || c.Token() != "" {
		t.Errorf("kept %q: %v", c.Token(), err)
	}
}
