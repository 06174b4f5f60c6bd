// Package connect connects a process to Postgres, to Pub/Sub and to another service.
//
// # Postgres
//
// A process has a pool for each kind of use, so that no use can take the connections of another (Pools):
//
//	Requests  requests                            4, or the URL's pool_max_conns
//	Loops     the loops: relay, consumers, sweep  4
//	Probe     readiness                           1
//
// LISTEN takes one more connection, outside of the pools. In total a process has ten.
//
// # Pub/Sub
//
// If PUBSUB_EMULATOR_HOST is set, the client library connects to that address, in plain text and
// without credentials. The client of this package differs from the library's own client in three
// ways. After an outage, the client of this package works again within a second or two. The
// library's own client pauses for up to two minutes. The client of this package replaces a lost
// connection after 35 seconds, and the library's own client after five minutes at the earliest. With
// a local broker, the client of this package also keeps idle subscriptions alive. keepalive.go has
// the reasons.
//
// # Another service
//
// A call over gRPC carries the identity of the calling service.
//
// Only the port of the called service's address decides how this package connects:
//
//	host:443   A service on Cloud Run, which checks its invokers. The connection
//	           uses TLS, and each call has an ID token of Google for the
//	           audience https://host.
//	any other  A service on a laptop, or in a container on the same network. The
//	           connection uses plain text, and no call has a token.
//
// So the configuration of a process shows how the process connects. If a process detected Google
// Cloud itself, the result would be a guess. The guess would be wrong while the metadata server is
// slow, which can last a minute or so. The calls would then go out without a token and be refused.
//
// The token names the service account that this process runs as, by its email. The token comes from
// the metadata server that every machine of Google Cloud has, or from the server at
// GCE_METADATA_HOST. A token lives for an hour. From five minutes before the token's end on, the
// process asks for the next token. Until that token arrives, calls use the old one, up to 30 seconds
// before its end. Each call carries the token in two headers. The header Authorization stays free for
// the user for whom the call is made.
//
// Cloud Run reads X-Serverless-Authorization first, verifies the token before the request reaches a
// container, and removes the token's signature
// (https://cloud.google.com/run/docs/authenticating/service-to-service). The called service
// verifies X-Service-Authorization, which Cloud Run does not change. The rules of the called
// service say which caller may call which operation (package auth).
package connect
