package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Claim says what somebody has of a lock or an election.
type Claim string

// Claims on locks, and on elections.
const (
	Writing   Claim = "writing"   // has the lock alone
	Reading   Claim = "reading"   // shares the lock with other readers
	Waiting   Claim = "waiting"   // comes in turn as the writer
	Leading   Claim = "leading"   // is elected
	Candidate Claim = "candidate" // is elected when those before it are gone
)

// Lock is one claim on a lock or an election. It ends with its lease.
type Lock struct {
	Name  string     `json:"name"` // of the lock, or leader/NAMESPACE for an election
	Claim Claim      `json:"claim"`
	Owner string     `json:"owner"` // worker or node; else a reader's id; else empty
	Lease InstanceID `json:"lease_id"`
	// Left is the time until the lease ends unless it is renewed; nil if that is not known.
	Left *time.Duration `json:"left_ns"`
}

// LockPrefix covers the keys of all locks, and of what else is stored in buckets.
const LockPrefix = "v1/"

// bucketPrefixes are what LockPrefix covers besides locks.
var bucketPrefixes = []string{"v1/instances/", "v1/mdc/", "v1/event_channels/", "v1/event_sources/"}

// ParseLockKey returns the lock and the claim that a key stands for, and the id of a reader;
// ok is false for keys of other kinds. The keys are those of RWLock in package store.
func ParseLockKey(key string) (name string, claim Claim, reader string, ok bool) {
	rest, ok := strings.CutPrefix(key, LockPrefix)
	if !ok || slices.ContainsFunc(bucketPrefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
		return "", "", "", false
	}
	if name, ok := strings.CutSuffix(rest, "/writer"); ok && name != "" {
		return name, Writing, "", true
	}
	parts := strings.Split(rest, "/")
	if len(parts) < 3 {
		return "", "", "", false
	}
	name, last := strings.Join(parts[:len(parts)-2], "/"), parts[len(parts)-1]
	switch parts[len(parts)-2] {
	case "readers":
		return name, Reading, last, true
	case "writers":
		return name, Waiting, "", true
	}
	return "", "", "", false
}

// CompareLocks orders claims by lock: who has it, then who waits, the first one first.
// Claims of one kind keep their order.
func CompareLocks(a, b Lock) int {
	order := []Claim{Leading, Writing, Reading, Waiting, Candidate}
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(slices.Index(order, a.Claim), slices.Index(order, b.Claim)))
}
