// Package down stops a cluster: dynctl down drains its workers, ends its processes on this
// machine, and makes sure that nothing is left.
package down
