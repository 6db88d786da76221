// Package attach lets services behind a URL join the cluster through a dynamod. For each it
// holds a lease, serves the endpoint or the model while the service is ready, and publishes
// events in its name.
package attach
