// Package clustertest runs whole clusters inside a test, with faults on demand:
// agents in this process or as processes of their own that can be killed, over
// etcd and NATS servers that can be stopped and started again. A process can be told to
// die at a failpoint of its workers, and asked what it uses.
//
// Start with [Start], which returns a [Cluster] that is up and ends with its test.
// It is for tests only.
package clustertest
