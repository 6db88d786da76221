package nixl

import (
	"math"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// What peers did in this agent's memory is counted by direction: accesses and bytes.
func TestAccessesAreCounted(t *testing.T) {
	var c counters
	c.accessed(Write, 10)
	c.accessed(Read, 100)
	c.accessed(Read, 1000)
	if w, in, r, out := c.inWrites.Load(), c.inBytes.Load(), c.outReads.Load(), c.outBytes.Load(); w != 1 || in != 10 || r != 2 || out != 1100 {
		t.Errorf("%d writes of %d bytes, %d reads of %d bytes", w, in, r, out)
	}
	c.posted(Write)
	c.posted(Write)
	c.posted(Read)
	if tx, rx := c.txRequests.Load(), c.rxRequests.Load(); tx != 2 || rx != 1 {
		t.Errorf("%d writes and %d reads posted", tx, rx)
	}
	c.ended(Write, Success, 7, time.Second)
	c.ended(Read, Success, 5, time.Second)
	c.ended(Read, ErrRemoteDisconnect, 99, time.Hour)
	if n, tx, rx, took := c.succeeded.Load(), c.txBytes.Load(), c.rxBytes.Load(), c.xferTime.Load(); n != 2 || tx != 7 || rx != 5 || took != int64(2*time.Second) {
		t.Errorf("%d succeeded, %d bytes written, %d read, in %d ns", n, tx, rx, took)
	}
	if n := c.errors[-int(ErrRemoteDisconnect)].Load(); n != 1 {
		t.Errorf("%d ended by a disconnect", n)
	}
}

// A region gets addresses of its own, with a gap behind it, or none: they never wrap.
func TestAddressesNeverWrap(t *testing.T) {
	const longest = math.MaxInt64 - regionGap - 4095
	for _, tc := range []struct {
		len, next uint64
		want      uint64 // the next one's; 0: refused
	}{
		{1, 4096, 4096 + 4096 + regionGap},
		{4096, 4096, 4096 + 4096 + regionGap},
		{4097, 4096, 4096 + 8192 + regionGap},
		{longest, 0, (longest+4095)&^4095 + regionGap},
		{longest + 1, 0, 0},
		{1, math.MaxUint64 - 4096 - regionGap, math.MaxUint64},
		{1, math.MaxUint64 - 4096 - regionGap + 1, 0},
		{math.MaxUint64, 4096, 0},
	} {
		r, next := &Region{segment: segment{len: tc.len}}, tc.next
		err := (&regions{}).placeLocked(r, &next)
		switch {
		case tc.want == 0 && (StatusOf(err) != ErrBackend || next != tc.next):
			t.Errorf("%d bytes at %#x: %v, next %#x", tc.len, tc.next, err, next)
		case tc.want != 0 && (err != nil || next != tc.want || r.base.Addr != tc.next || r.base.Len != tc.len):
			t.Errorf("%d bytes at %#x: %v, %v, next %#x, want %#x", tc.len, tc.next, err, r.base, next, tc.want)
		}
	}
}

// Incarnations are random UUIDs, of version 4 and the usual variant.
func TestUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	digits := make([]map[byte]bool, 36)
	for i := range digits {
		digits[i] = map[byte]bool{}
	}
	for range 500 {
		id := newUUID()
		if !form.MatchString(id) {
			t.Fatal(id)
		}
		for i := range digits {
			digits[i][id[i]] = true
		}
	}
	for i, d := range digits {
		want := 16
		switch {
		case slices.Contains([]int{8, 13, 14, 18, 23}, i):
			want = 1
		case i == 19:
			want = 4
		}
		if len(d) != want {
			t.Errorf("%d digits at %d, want %d", len(d), i, want)
		}
	}
}

// A handler gets every notification, in order, in place of the channel.
func TestHandlerGetsNotifications(t *testing.T) {
	got := make(chan Notification, 9)
	b := newInbox(1<<20, func(n Notification) { got <- n }, &counters{})
	for _, msg := range []string{"first", "second"} {
		b.deliver("peer", []byte(msg), func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	for _, want := range []string{"first", "second"} {
		select {
		case n := <-got:
			if n.From != "peer" || string(n.Msg) != want {
				t.Errorf("%+v, want %q", n, want)
			}
		case <-time.After(patience.Soon):
			t.Fatalf("no notification %q", want)
		}
	}
	b.close()
}
