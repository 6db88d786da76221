// Package set shows and changes settings: those of a cluster while it runs and the roles of
// its workers (dynctl set), and those of dynctl itself (dynctl config).
package set
