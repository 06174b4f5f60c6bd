// Package connect connects a process to Postgres, to Pub/Sub and to another service.
//
// # Postgres
//
// A process has a pool for each kind of user, so that none can take the connections of
// another:
//
//	OpenPool     requests                            4, or the URL's pool_max_conns
//	ReservePool  the loops: relay, consumers, sweep  4
//	ReservePool  readiness                           1
//
// LISTEN takes one more connection, outside of the pools: ten for each process.
//
// # Pub/Sub
//
// With PUBSUB_EMULATOR_HOST set the client library connects to that address, in plain
// text and without credentials. The client made here differs from the library's own in
// two ways: after an outage it works again within a second or two, while the library's
// waits grow to a minute; and with a local broker it keeps idle subscriptions alive
// (keepalive.go has the reason).
//
// # Another service
//
// A call over gRPC carries the identity of the calling service.
//
// The port of the other's address decides, and nothing else does:
//
//	host:443   TLS, and on each call an ID token of Google for the audience
//	           https://host: a service on Cloud Run, which checks its invokers
//	host:8080  or any other: plain text and no token: a laptop, containers on one
//	           network. No token ever goes that way
//
// So a process's behaviour can be read off its configuration. Detection of Google Cloud
// would be a guess, and it would be wrong in the minute when the metadata server is
// slow: the calls would go out without a token and be refused.
//
// The token names the service account that this process runs as, by its email. It comes from the
// metadata server that every machine of Google Cloud has (GCE_METADATA_HOST is another
// one), lives for an hour, and is kept until a few minutes before its end. It goes out
// in two headers; the header Authorization stays free for the user for whom the call is
// made. Cloud Run reads X-Serverless-Authorization first, verifies it before the request
// reaches a container, and takes its signature away
// (https://cloud.google.com/run/docs/authenticating/service-to-service). The called
// service verifies X-Service-Authorization, which Cloud Run passes on as it came: who may
// call which operation is the service's own rule (package auth).
package connect
