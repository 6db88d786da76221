package nixltest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// devices is a pair of agents each of which has host memory and memory of a device.
type devices struct {
	*pair
	da, db *Device
	va, vb *nixl.Region
	rv     nixl.RemoteRegion
}

func newDevices(t *testing.T, e Env, size int, change ...func(*nixl.Config)) *devices {
	d := &devices{pair: newPair(t, e, size, change...), da: NewDevice(1, size), db: NewDevice(0, size)}
	d.va, d.vb = RegisterDevice(t, d.a, d.da), RegisterDevice(t, d.b, d.db)
	Load(t, d.a, d.b)
	var err error
	if d.rv, err = d.a.RemoteRegion("b", "vram"); err != nil {
		t.Fatal(err)
	}
	if d.rv.Type != nixl.VRAM {
		t.Errorf("remote region = %+v", d.rv)
	}
	return d
}

// testStaging moves memory of devices, which no transport can address, in all
// combinations with host memory.
func testStaging(t *testing.T, e Env) {
	const block, count = 96<<10 + 8, 90 / shrink // more than two chunks, none of which ends with a block
	const half = count/2 + 1
	d := newDevices(t, e, block*count)
	rnd := rand.New(rand.NewPCG(4, 4))
	for _, c := range []struct {
		name            string
		local, remote   nixl.MemType
		op              nixl.Op
		fromSeed, count uint64
	}{
		{"write host to device", nixl.DRAM, nixl.VRAM, nixl.Write, 10, half},
		{"read device to host", nixl.DRAM, nixl.VRAM, nixl.Read, 11, half},
		{"write device to host", nixl.VRAM, nixl.DRAM, nixl.Write, 12, half},
		{"read host to device", nixl.VRAM, nixl.DRAM, nixl.Read, 13, half},
		{"write device to device", nixl.VRAM, nixl.VRAM, nixl.Write, 14, count},
		{"read device to device", nixl.VRAM, nixl.VRAM, nixl.Read, 15, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			local, remote, ticketed := d.la.Desc, d.rb.Desc, d.lb
			get := map[bool]func() []byte{true: func() []byte { d.b.Tickets(); return d.mb }, false: func() []byte { return d.ma }}
			put := map[bool]func([]byte){true: func(b []byte) { d.b.Tickets(); copy(d.mb, b); d.b.Tickets() }, false: func(b []byte) { copy(d.ma, b) }}
			if c.local == nixl.VRAM {
				local = d.va.Desc
				get[false] = func() []byte { return d.da.Content(t) }
				put[false] = func(b []byte) { _, _ = d.da.WriteAt(b, 0) }
			}
			if c.remote == nixl.VRAM {
				remote, ticketed = d.rv.Desc, d.vb
				get[true] = func() []byte { return d.db.Content(t) }
				put[true] = func(b []byte) { _, _ = d.db.WriteAt(b, 0) }
			}
			want := make([]byte, block*count)
			Fill(want, c.fromSeed)
			atTarget := c.op == nixl.Read
			put[atTarget](want)
			put[!atTarget](make([]byte, len(want)))
			ls, from := Blocks(rnd, local, int(c.count), block)
			rs, to := Blocks(rnd, remote, int(c.count), block)
			if c.op == nixl.Read {
				from, to = to, from
			}
			x := New(t, d.a, c.op, ls, rs, "b", nixl.TransferOpts{Ticket: Ticket(t, d.b, c.op, ticketed.Desc(0, ticketed.Len())), Notify: []byte("moved")})
			loads := d.da.loads.Load()
			x.Post()
			if n := Next(t, d.b); string(n.Msg) != "moved" {
				t.Errorf("notification = %q", n.Msg)
			}
			if c.op == nixl.Read {
				WantStatus(t, End(t, x), nixl.Success)
			}
			if n := d.da.loads.Load() - loads; c.op == nixl.Read && n > 0 {
				t.Errorf("memory that is only written to was copied from the device %d times", n)
			}
			got := get[!atTarget]()
			for i := range from {
				Same(t, got[to[i]*block:][:block], want[from[i]*block:][:block])
			}
			WantStatus(t, End(t, x), nixl.Success)
			NoMore(t, d.b)
		})
	}
}

// testStagingShort has less staging memory than the transfers want.
func testStagingShort(t *testing.T, e Env) {
	const workers, size = 3, 3 * nixl.StagingChunk / 2 / shrink
	d := newDevices(t, e, workers*size, func(c *nixl.Config) { c.Limits.StagingBytes = 1 })
	want := make([]byte, workers*size)
	Fill(want, 3)
	if _, err := d.da.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	id := Ticket(t, d.b, nixl.Write, d.vb.Desc(0, d.vb.Len()))
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		x := New(t, d.a, nixl.Write, []nixl.Desc{d.va.Desc(w*size, size)}, []nixl.Desc{d.rv.Desc(w*size, size)}, "b", nixl.TransferOpts{Ticket: id})
		wg.Go(func() {
			for range 3 {
				x.Post()
				if err := x.Wait(t.Context()); err != nil {
					t.Errorf("worker %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	Same(t, d.db.Content(t), want)
}

// testStagingEnds ends transfers of device memory early, in every way.
func testStagingEnds(t *testing.T, e Env) {
	const size = 3 * nixl.StagingChunk / 2 / shrink
	d := newDevices(t, e, size, func(c *nixl.Config) { c.StagingPatience = 100 * time.Millisecond })
	write := func(id nixl.TicketID) *nixl.Transfer {
		return New(t, d.a, nixl.Write, []nixl.Desc{d.va.Desc(0, size)}, []nixl.Desc{d.rv.Desc(0, size)}, "b", nixl.TransferOpts{Ticket: id, HasNotify: true})
	}
	all := d.vb.Desc(0, size)
	x := write(nixl.TicketID{})
	WantStatus(t, Do(t, x), nixl.ErrNotAllowed)

	for i := range 6 {
		id := Ticket(t, d.b, nixl.Write, all)
		x := write(id)
		x.Post()
		if i%2 > 0 {
			Poll(t, "the write is running", func() bool {
				n, _ := d.b.InFlight()
				return n > 0 || x.Status() != nixl.InProgress
			})
		}
		if err := d.b.RevokeTicket(Context(t), id); err != nil {
			t.Fatal(err)
		}
		blank := make([]byte, size) // the memory is the target's again
		if _, err := d.db.WriteAt(blank, 0); err != nil {
			t.Fatal(err)
		}
		WantStatus(t, End(t, x), nixl.ErrNotAllowed, nixl.Success)
		Same(t, d.db.Content(t), blank)
		Drain(t, d.b)
	}

	id := Ticket(t, d.b, nixl.Write, all)
	for range 4 {
		x := write(id)
		x.Post()
		x.Release()
		WantStatus(t, End(t, x), nixl.ErrCanceled, nixl.Success)
	}
	for _, dev := range []*Device{d.da, d.db} {
		dev.fail.Store(true)
		x := write(id)
		WantStatus(t, Do(t, x), nixl.ErrBackend)
		dev.fail.Store(false)
	}
	Drain(t, d.b)
	x = write(id)
	WantStatus(t, Do(t, x), nixl.Success)
	Next(t, d.b)
	if err := d.va.Deregister(); err != nil {
		t.Error(err)
	}
	if st := x.Post(); st != nixl.ErrNotFound {
		t.Errorf("post with deregistered memory = %s", st)
	}
}
