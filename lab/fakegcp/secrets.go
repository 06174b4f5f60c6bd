package fakegcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var secret = &resourceKind{
	collection: "projects/*/secrets", identify: fromQuery("secretId"),
	actions: map[string]func(*Server, *call) (fields, error){"addVersion": addVersion},
}

var secretVersion = &resourceKind{
	collection: "projects/*/secrets/*/versions",
	actions: map[string]func(*Server, *call) (fields, error){
		"access": func(s *Server, c *call) (fields, error) {
			v, err := s.version(c.name)
			if err != nil {
				return nil, err
			}
			return fields{"name": v.name, "payload": fields{"data": v.payload}}, nil
		},
		"enable":  setState("ENABLED"),
		"disable": setState("DISABLED"),
		"destroy": setState("DESTROYED"),
	},
}

func addVersion(s *Server, c *call) (fields, error) {
	if _, err := s.get(c); err != nil {
		return nil, err
	}
	data := text(object(c.body, "payload")["data"])
	if _, err := base64.StdEncoding.DecodeString(data); err != nil || data == "" {
		return nil, invalid("payload.data", "want some bytes in base64")
	}
	latest := 0
	for name := range s.resources {
		if n, of := strings.CutPrefix(name, key(secretsAPI, c.name)+"/versions/"); of {
			n, _ := strconv.Atoi(n)
			latest = max(latest, n)
		}
	}
	v := &resource{api: secretsAPI, name: fmt.Sprintf("%s/versions/%d", c.name, latest+1), payload: data}
	v.body = fields{"name": v.name, "state": "ENABLED"}
	s.resources[key(secretsAPI, v.name)] = v
	return v.body, nil
}

func setState(state string) func(*Server, *call) (fields, error) {
	return func(s *Server, c *call) (fields, error) {
		v, err := s.get(c)
		if err != nil {
			return nil, err
		}
		v.body["state"] = state
		return v.body, nil
	}
}

// secret returns the value of a secret version.
func (v *resource) secret() (string, error) {
	data, err := base64.StdEncoding.DecodeString(v.payload)
	return string(data), err
}

// version returns the enabled secret version with this name. The name may end in "latest".
func (s *Server) version(name string) (*resource, error) {
	secret, id, _ := strings.Cut(name, "/versions/")
	if id == "latest" {
		for n := 1; s.resources[key(secretsAPI, fmt.Sprintf("%s/versions/%d", secret, n))] != nil; n++ {
			name = fmt.Sprintf("%s/versions/%d", secret, n)
		}
	}
	v := s.resources[key(secretsAPI, name)]
	if v == nil {
		return nil, missing(name)
	}
	if v.body["state"] != "ENABLED" {
		return nil, precondition("Secret Version [%s] is in %s state.", name, v.body["state"])
	}
	return v, nil
}

// AddSecretVersion adds a version to a secret, like `gcloud secrets versions add`.
func (s *Server) AddSecretVersion(secret, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &call{name: secret, body: fields{"payload": fields{"data": base64.StdEncoding.EncodeToString([]byte(value))}}}
	c.api = &api{name: secretsAPI}
	if _, err := addVersion(s, c); err != nil {
		return errors.Join(errors.New("add a version to "+secret), err)
	}
	return nil
}
