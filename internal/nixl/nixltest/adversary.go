package nixltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// TicketsEnv says how many tickets the adversary tries, in the place of a few thousand.
const TicketsEnv = "DYNCTL_TICKETS"

// adversarial is the number of attempts without TicketsEnv.
const adversarial = 2000 / shrink

// The target's memory is a row of blocks: guards that no ticket is ever for, with those
// between them that tickets are for.
const (
	advBlock  = 4 << 10
	advBlocks = 16
	advSize   = advBlock * advBlocks
)

// attack is one use of a ticket that the target must refuse.
type attack struct {
	kind   string
	op     nixl.Op
	ticket nixl.TicketID
	desc   nixl.Desc
}

// victim is one life of the target, and what the adversary has collected so far.
type victim struct {
	*pair
	base nixl.Desc // of the target's memory

	forged                   []nixl.TicketID // that other lives and other agents opened
	revoked, expired, reused []nixl.TicketID
	open                     [advBlocks]map[nixl.Op]nixl.TicketID // for one block each; guards have none
	before                   []nixl.Desc                          // memory of earlier lives
}

// testAdversary uses tickets as nobody may: unknown, of another agent, of a life before a
// restart, revoked, expired, used up, for other memory, beyond their end, at offsets that
// overflow, for the other direction. Its peer does not check what it asks for: it believes
// that all addresses are the target's. None is accepted, and no byte changes on either side.
func testAdversary(t *testing.T, e Env) {
	total := adversarial
	if s := os.Getenv(TicketsEnv); s != "" {
		var err error
		if total, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s: %v", TicketsEnv, err)
		}
	}
	const lives = 4
	seed := rand.Uint64()
	begin := time.Now()
	tried, reached := map[string]int{}, 0
	var v victim
	for life := range lives {
		v.begin(t, e)
		v.lawful(t)
		n := total / lives
		if life == lives-1 {
			n = total - n*(lives-1)
		}
		reached += v.attackAll(t, rand.New(rand.NewPCG(seed, uint64(life))), n, tried)
		v.lawful(t)
		v.end(t)
	}
	var kinds []string
	sum := 0
	for _, k := range slices.Sorted(maps.Keys(tried)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", tried[k], k))
		sum += tried[k]
	}
	t.Logf("seed %d: %d tickets in %s, of which %d reached the target: %q", seed, sum, time.Since(begin).Round(time.Millisecond), reached, kinds)
	if sum != total {
		t.Errorf("%d tickets were tried, want %d", sum, total)
	}
}

// begin starts the target, for the first or another time, and opens tickets.
func (v *victim) begin(t *testing.T, e Env) {
	v.pair = &pair{a: e.Agent(t, "a"), b: e.Agent(t, "b")}
	v.la, v.ma = e.Region(t, v.a, 2*advSize)
	v.lb, v.mb = e.Region(t, v.b, advSize)
	v.base = v.lb.Desc(0, advSize)
	Load(t, v.a, v.b)
	v.rb = Remote(t, v.a, v.b)
	if _, err := v.a.LoadRemote(everywhere(t, v.b.Metadata(), v.base)); err != nil {
		t.Fatal(err)
	}
	Fill(v.mb, 7)
	other := e.Agent(t, "c")
	lo, _ := e.Region(t, other, advSize)
	v.forged = append(v.forged, Ticket(t, other, nixl.Write, lo.Desc(0, advSize)), Ticket(t, other, nixl.Read, lo.Desc(0, advSize)))
	v.before = append(v.before, lo.Desc(0, advSize))
	v.revoked, v.expired, v.reused = nil, nil, nil
	for i := 1; i < advBlocks; i += 2 {
		d := v.block(i)
		v.open[i] = map[nixl.Op]nixl.TicketID{nixl.Read: Ticket(t, v.b, nixl.Read, d), nixl.Write: Ticket(t, v.b, nixl.Write, d)}
	}
	soon := time.Now().Add(20 * time.Millisecond)
	for i := range 64 {
		d := v.block(i % advBlocks)
		op := nixl.Op(i / advBlocks % 2)
		id := Ticket(t, v.b, op, d)
		if err := v.b.RevokeTicket(Context(t), id); err != nil {
			t.Fatal(err)
		}
		v.revoked = append(v.revoked, id)
		id, err := v.b.OpenTicket(nixl.TicketSpec{Access: op, Descs: []nixl.Desc{d}, Deadline: soon})
		if err != nil && time.Now().Before(soon) {
			t.Fatal(err)
		}
		if err == nil {
			v.expired = append(v.expired, id)
		}
	}
	Poll(t, "the tickets expire", func() bool { return v.b.Stats().TicketsExpired == uint64(len(v.expired)) })
}

// end has the tickets of this life be those of an earlier one, and closes the agents.
func (v *victim) end(t *testing.T) {
	for _, tickets := range v.open {
		for _, id := range tickets {
			v.forged = append(v.forged, id)
		}
	}
	v.before = append(v.before, v.base)
	for _, a := range []*nixl.Agent{v.a, v.b} {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (v *victim) block(i int) nixl.Desc { return v.lb.Desc(uint64(i)*advBlock, advBlock) }

// lawful proves that the path works: what a ticket allows arrives, once it is revoked it
// is one more to try.
func (v *victim) lawful(t *testing.T) {
	t.Helper()
	d := v.block(3)
	want := bytes.Clone(v.mb)
	copy(v.ma, want[3*advBlock:4*advBlock]) // what is there already
	for _, op := range []nixl.Op{nixl.Write, nixl.Read} {
		id := Ticket(t, v.b, op, d)
		WantStatus(t, Do(t, New(t, v.a, op, []nixl.Desc{v.la.Desc(0, advBlock)}, []nixl.Desc{d}, "b", nixl.TransferOpts{Ticket: id})), nixl.Success)
		if err := v.b.RevokeTicket(Context(t), id); err != nil {
			t.Fatal(err)
		}
		v.reused = append(v.reused, id)
	}
	SameAt(t, v.b, v.mb, want)
}

// attackAll makes n attacks, several at a time. It returns how many reached the target.
func (v *victim) attackAll(t *testing.T, r *rand.Rand, n int, tried map[string]int) (sent int) {
	t.Helper()
	const hands = 4
	Fill(v.ma, 9)
	mine, theirs := crc32.ChecksumIEEE(v.ma), crc32.ChecksumIEEE(v.mb)
	before := refusals(v.b)
	attacks := make(chan attack, hands)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range hands {
		wg.Go(func() {
			for x := range attacks {
				reached := v.strike(t, x)
				mu.Lock()
				if reached {
					sent++
				}
				mu.Unlock()
			}
		})
	}
	for range n {
		x := v.draw(r)
		tried[x.kind]++
		attacks <- x
	}
	close(attacks)
	wg.Wait()
	v.b.Tickets() // see SameAt
	if got := crc32.ChecksumIEEE(v.mb); got != theirs {
		t.Errorf("the target's memory has changed")
	}
	if got := crc32.ChecksumIEEE(v.ma); got != mine {
		t.Errorf("bytes of the target were read")
	}
	if got := refusals(v.b) - before; got < uint64(sent) {
		t.Errorf("the target counts %d refusals of %d", got, sent)
	}
	if in, _ := v.b.InFlight(); in != 0 {
		t.Errorf("%d accesses are left", in)
	}
	return sent
}

// strike makes one attack and reports whether it reached the target.
func (v *victim) strike(t *testing.T, x attack) (reached bool) {
	local := v.la.Desc(0, min(x.desc.Len, v.la.Len()))
	tr, err := v.a.NewTransfer(x.op, []nixl.Desc{local}, []nixl.Desc{x.desc}, "b", nixl.TransferOpts{Ticket: x.ticket, HasNotify: true})
	if err != nil {
		return false // its own agent refuses, as what overflows
	}
	defer tr.Release()
	switch err := Do(t, tr); nixl.StatusOf(err) {
	case nixl.ErrNotAllowed:
		return true
	case nixl.Success:
		t.Errorf("accepted: %s, %s of %s", x.kind, x.op, x.desc)
	default:
		t.Errorf("%s, %s of %s ended with %v, want %s", x.kind, x.op, x.desc, err, nixl.ErrNotAllowed)
	}
	return false
}

// draw makes up an attack.
func (v *victim) draw(r *rand.Rand) attack {
	pick := func(ids []nixl.TicketID) nixl.TicketID { return ids[r.IntN(len(ids))] }
	op := nixl.Op(r.IntN(2))
	in := 1 + 2*r.IntN(advBlocks/2) // a block with tickets
	inside := func(i int) nixl.Desc {
		off := uint64(r.IntN(advBlock))
		return v.lb.Desc(uint64(i)*advBlock+off, 1+uint64(r.IntN(int(advBlock-off))))
	}
	switch r.IntN(11) {
	case 0:
		var id nixl.TicketID
		for i := range id {
			id[i] = byte(r.Uint32())
		}
		return attack{"guessed", op, id, inside(in)}
	case 1: // one bit of one that is open
		id := v.open[in][op]
		id[r.IntN(len(id))] ^= 1 << r.IntN(8)
		return attack{"almost right", op, id, inside(in)}
	case 2:
		return attack{"of another agent or life", op, pick(v.forged), inside(in)}
	case 3:
		d := v.before[r.IntN(len(v.before))]
		return attack{"of another agent or life, for its memory", op, pick(v.forged), nixl.Desc{Addr: d.Addr, Len: 1 + uint64(r.IntN(advSize)), DevID: v.base.DevID}}
	case 4:
		return attack{"revoked", op, pick(v.revoked), inside(r.IntN(advBlocks))}
	case 5:
		if len(v.expired) > 0 {
			return attack{"expired", op, pick(v.expired), inside(r.IntN(advBlocks))}
		}
		fallthrough
	case 6:
		return attack{"used before and revoked", op, pick(v.reused), inside(3)}
	case 7:
		return attack{"for another block", op, v.open[in][op], inside((in + 1 + r.IntN(advBlocks-1)) % advBlocks)}
	case 8:
		return attack{"for the other direction", op, v.open[in][1-op], inside(in)}
	case 9: // from within the block over its end, or from before it
		off := uint64(r.IntN(advBlock))
		d := v.lb.Desc(uint64(in)*advBlock+off, 1)
		d.Len = advBlock - off + 1 + uint64(r.IntN(advBlock))
		if r.IntN(2) == 0 {
			d.Addr, d.Len = v.block(in).Addr-1-uint64(r.IntN(advBlock)), advBlock+1+uint64(r.IntN(advBlock))
		}
		return attack{"too long", op, v.open[in][op], d}
	default: // so that sums of addresses and lengths overflow, or nearly
		far := []uint64{0, 1, math.MaxInt64 - 1, math.MaxInt64, math.MaxUint64, v.base.Addr + advSize, v.base.Addr - 1, -v.block(in).Addr}
		d := nixl.Desc{Addr: far[r.IntN(len(far))] - uint64(r.IntN(3)), Len: 1 + uint64(r.IntN(advSize)), DevID: v.base.DevID}
		if r.IntN(4) == 0 {
			d.Len = far[r.IntN(len(far))]
		}
		if v.block(in).Covers(d) { // the end of the last block
			d.Len = advBlock
		}
		return attack{"overflowing", op, v.open[in][op], d}
	}
}

func refusals(a *nixl.Agent) (n uint64) {
	for _, k := range a.Stats().Refused {
		n += k
	}
	return n
}

// everywhere changes the metadata of an agent such that a region of it is at all addresses.
func everywhere(t *testing.T, blob []byte, base nixl.Desc) []byte {
	t.Helper()
	blob = bytes.Clone(blob)
	was := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, base.Addr), base.Len)
	at := bytes.Index(blob, was)
	if at < 0 || bytes.Count(blob, was) != 1 {
		t.Fatalf("the region %s is not in the metadata", base)
	}
	binary.LittleEndian.PutUint64(blob[at:], 0)
	binary.LittleEndian.PutUint64(blob[at+8:], math.MaxInt64)
	body := blob[:len(blob)-4]
	return binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}
