// Package inspect describes a model on this machine: what it is, what it needs, and
// everything that keeps it from being served.
//
// Start with [Look] and [Report], which encodes as JSON.
//
// Look opens the model, reads headers and small files, and closes it again; the
// report holds nothing of it. It reads no weights, computes nothing with them, and
// knows no cluster: a model that passes here can still be too large for a node.
package inspect
