package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Record is one key of the store, or one lease.
type Record struct {
	Object
	Spec RecordSpec `json:"spec"`
}

// RecordSpec is the content of a [Record]. A lease has a TTL; a key has a key.
type RecordSpec struct {
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"` // a value that is text
	Bytes []byte `json:"bytes,omitempty"` // any other value
	// Write names the write that made the record what it is: two writes of one value are
	// two changes.
	Write string `json:"write,omitempty"`
	// Pending hides a key of which it is not known yet whether it may be. Since is the
	// version at which such a key asked for its place.
	Pending bool  `json:"pending,omitempty"`
	Since   int64 `json:"since,omitempty"`

	Lease    string `json:"lease,omitempty"`    // in hexadecimal: the key's, or this one
	LeaseUID string `json:"leaseUID,omitempty"` // of a key: the uid of its lease's record
	TTL      int64  `json:"ttlMilliseconds,omitempty"`
	Beats    int64  `json:"beats,omitempty"` // of a lease: grows with each renewal
	Run      string `json:"run,omitempty"`   // of a lease: the process that holds it
}

// IsLease reports whether the record is a lease.
func (r *Record) IsLease() bool { return r.Spec.TTL > 0 }

// LeaseID returns the lease of a key, or that of a lease; 0 is none.
func (r *Record) LeaseID() cluster.InstanceID {
	id, err := cluster.ParseInstanceID(r.Spec.Lease)
	if err != nil {
		return 0
	}
	return id
}

// Duration returns the TTL of a lease.
func (r *Record) Duration() time.Duration { return time.Duration(r.Spec.TTL) * time.Millisecond }

// Data returns the value of a key.
func (r *Record) Data() []byte {
	if r.Spec.Bytes != nil {
		return r.Spec.Bytes
	}
	return []byte(r.Spec.Value)
}

// SetData sets the value of a key.
func (s *RecordSpec) SetData(value []byte) {
	s.Value, s.Bytes = "", nil
	if utf8.Valid(value) {
		s.Value = string(value)
	} else {
		s.Bytes = value
	}
}

// KeyObject returns the name of the record of a key: names of objects have fewer characters
// and cannot be as long.
func KeyObject(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "k-" + hex.EncodeToString(sum[:20])
}

// LabelLease is on the records of leases.
const LabelLease = "dynctl.dev/lease"

// LeaseObject returns the name of the record of a lease.
func LeaseObject(id cluster.InstanceID) string { return "l-" + id.String() }

// labelDirectories begins the labels of records by which prefixes are listed.
const labelDirectories = "dynctl.dev/in-"

// directories is the number of levels that have labels.
const directories = 6

// KeyLabels returns the labels of the record of a key: one for each directory it is in.
func KeyLabels(key string) map[string]string {
	labels := map[string]string{}
	for level := range directories {
		dir, ok := directory(key, level)
		if !ok {
			break
		}
		labels[labelDirectories+string(rune('0'+level))] = digest(dir)
	}
	return labels
}

// Selector returns a selector of all records whose keys begin with prefix, and maybe
// others.
func Selector(prefix string) string {
	for level := directories - 1; level >= 0; level-- {
		if dir, ok := directory(prefix, level); ok {
			return labelDirectories + string(rune('0'+level)) + "=" + digest(dir)
		}
	}
	return ""
}

// directory returns the beginning of a key up to the slash after level others, not counting
// a slash at the beginning.
func directory(key string, level int) (string, bool) {
	end := 0
	if strings.HasPrefix(key, "/") {
		end = 1
	}
	for range level + 1 {
		i := strings.IndexByte(key[end:], '/')
		if i < 0 {
			return "", false
		}
		end += i + 1
	}
	return key[:end], true
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
