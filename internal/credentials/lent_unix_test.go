//go:build unix

package credentials

import (
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"
)

// info is a file with a mode and an owner.
type info struct {
	mode fs.FileMode
	uid  uint32
}

func (i info) Name() string       { return "secret" }
func (i info) Size() int64        { return 0 }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return &syscall.Stat_t{Uid: i.uid} }

func TestLent(t *testing.T) {
	other := os.Geteuid() != 0
	for _, tc := range []struct {
		info
		want bool
	}{
		{info{0o440, 0}, other}, // a mounted Secret
		{info{0o640, 0}, other},
		{info{0o660, 0}, false}, // the group may write
		{info{0o444, 0}, false}, // everybody may read
		{info{0o440, 1000}, false},
	} {
		if got := lent(tc.info); got != tc.want {
			t.Errorf("mode %o of user %d: got %t", tc.mode, tc.uid, got)
		}
	}
}
