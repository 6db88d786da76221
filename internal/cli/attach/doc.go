// Package attach has the verb that lets a service behind a URL join the cluster.
package attach
