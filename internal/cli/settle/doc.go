// Package settle waits until a cluster is as it was declared, and shows how far it is.
//
// [Goal.Judge] compares a view with a topology and is pure; a [Ledger] remembers when workers
// appeared, so that rows keep their order and times; [Wait] watches until all is done.
package settle
