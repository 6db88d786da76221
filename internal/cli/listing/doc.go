// Package listing prints things of one kind: once, or again whenever they change.
//
// A [Kind] says how its things are found, named and shown in a table. [Options] list them.
package listing
