// Package explain says why the cluster does something as it does: dynctl explain.
//
// What a worker, a node or a lease is explained by is put together by pure functions.
package explain
