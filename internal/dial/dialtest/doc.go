// Package dialtest runs etcd and NATS servers as processes of their own, with each way to
// let clients in. The programs are those of this machine, such as Debian's etcd 3.4 and
// nats-server 2.9: $DYNCTL_ETCD and $DYNCTL_NATS_SERVER name them. Tests are skipped without
// them.
//
// It is imported by tests only.
package dialtest
