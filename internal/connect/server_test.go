package connect

import "testing"

func TestUnverifiedServer(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:p@db.example.com/x":                                              "db.example.com",
		"postgres://u:p@db.example.com/x?sslmode=disable":                              "db.example.com",
		"postgres://u:p@db.example.com/x?sslmode=require":                              "db.example.com",
		"postgres://u:p@db.example.com/x?sslmode=verify-ca":                            "db.example.com",
		"postgres://u:p@db.example.com/x?sslmode=verify-full":                          "",
		"postgres://u:p@db.example.com:6543/x?sslmode=verify-full&sslrootcert=system":  "",
		"postgres://u:p@203.0.113.7/x?sslmode=require":                                 "203.0.113.7",
		"postgres://u:p@10.0.0.3,203.0.113.7/x?sslmode=require":                        "203.0.113.7",
		"postgres://u:p@[2001:db8::7]/x?sslmode=require":                               "2001:db8::7",
		"postgres://u:p@10.0.0.3/x?sslmode=disable":                                    "",
		"postgres://u:p@[fd00::3]/x":                                                   "",
		"postgres://u:p@127.0.0.1:5432/x":                                              "",
		"postgres://u:p@localhost/x":                                                   "",
		"postgres://u:p@postgres/x":                                                    "",
		"postgres://u:p@/x?host=/cloudsql/acme:europe-west1:lockstep":                  "",
		"postgres://u:p@/x?host=/cloudsql/acme.example.com:acme:europe-west1:lockstep": "",
		"postgres://u:secret@db:port/x":                                                "",
	} {
		if got := UnverifiedServer(url); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
