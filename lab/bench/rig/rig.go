// Package rig has the equipment of the measurements. One function starts each part. The method
// Close or Drop of the part ends it:
//
//	Process        this binary as a server in its own process (process.go), its memory and CPU time (proc.go)
//	Broker         a Pub/Sub in its own process, ours or a peer (broker.go, serve.go)
//	BrokerClient   an unused broker with a topic, a subscription and a client (broker_client.go)
//	Postgres       a server with a Database for each run (postgres.go, database.go)
//	ReadModel      catalog's database and projector, without broker and APIs (readmodel.go)
//	Relays         relays of one outbox, each as in its own process (relays.go)
//	BrokerProbe    the broker that they publish to; it checks the order (probe.go)
//	RelayFixture   writers, relays and a broker under load (relay_fixture.go)
//
// If a part is not installed on this machine, the error wraps [measure.ErrMissing], so that the
// measurements with this part are left out. Any other error is a failure.
package rig
