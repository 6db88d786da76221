package nixl_test

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
)

// must is for examples; programs look at errors.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// key would come from the secret of the cluster.
var key = handshake.RandomKey()

// One agent writes into the memory of another, which is told when the bytes are there.
func Example() {
	process := local.NewRegistry(0)
	start := func(name string) *nixl.Agent {
		return must(nixl.NewAgent(nixl.Config{Name: name, Key: key, Transports: []nixl.Transport{process.Transport(), tcp.New(tcp.Options{})}}))
	}
	prefill, decode := start("prefill"), start("decode")
	defer func() { _ = prefill.Close() }()
	defer func() { _ = decode.Close() }()

	// The target registers its memory and lets the initiator in for a while.
	pool := must(nixl.NewArena(1 << 20))
	kv := must(decode.Register(pool, nixl.DRAM, nixl.WithLabel("kv")))
	ticket := must(decode.OpenTicket(nixl.TicketSpec{Access: nixl.Write, Descs: []nixl.Desc{kv.Desc(0, 4096)}, Deadline: time.Now().Add(time.Minute)}))

	// The initiator loads the target's metadata, which travels over a store or a stream.
	peer := must(prefill.LoadRemote(decode.Metadata()))
	remote := must(prefill.RemoteRegion(peer, "kv"))

	source := must(nixl.NewArena(4096))
	copy(source.Bytes(), "keys and values")
	mine := must(prefill.Register(source, nixl.DRAM))
	t := must(prefill.NewTransfer(nixl.Write, []nixl.Desc{mine.Desc(0, 15)}, []nixl.Desc{remote.Desc(100, 15)}, peer,
		nixl.TransferOpts{Ticket: ticket, Notify: []byte("block 0")}))
	t.Post() // returns at once
	if err := t.Wait(context.Background()); err != nil {
		fmt.Println(err)
	}
	n := <-decode.Notifications()
	fmt.Printf("%s says %q: %s\n", n.From, n.Msg, pool.Bytes()[100:115])
	// Output: prefill says "block 0": keys and values
}

// Pools of equal blocks are prepared once; transfers select blocks by index.
func ExampleAgent_MakeTransfer() {
	process := local.NewRegistry(0)
	a := must(nixl.NewAgent(nixl.Config{Name: "a", Transports: []nixl.Transport{process.Transport()}}))
	b := must(nixl.NewAgent(nixl.Config{Name: "b", Transports: []nixl.Transport{process.Transport()}}))
	defer func() { _ = a.Close() }()
	defer func() { _ = b.Close() }()

	const block = 4096
	from, to := must(nixl.NewArena(8*block)), must(nixl.NewArena(8*block))
	source := must(a.Register(from, nixl.DRAM))
	target := must(b.Register(to, nixl.DRAM, nixl.WithLabel("kv")))
	ticket := must(b.OpenTicket(nixl.TicketSpec{Access: nixl.Write, Descs: []nixl.Desc{target.Desc(0, target.Len())}}))
	must(a.LoadRemote(b.Metadata()))

	mine := must(a.PrepareLocal(source.Blocks(block)))
	theirs := must(a.PrepareRemote("b", must(a.RemoteRegion("b", "kv")).Blocks(block)))
	t := must(a.MakeTransfer(nixl.Write, mine, []int32{0, 1, 2, 7}, theirs, []int32{4, 5, 6, 0}, nixl.TransferOpts{Ticket: ticket}))
	for i := range 3 { // as often as you like
		from.Bytes()[7*block] = byte(i)
		t.Post()
		if err := t.Wait(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	measured := must(t.Telemetry())
	fmt.Println(mine.Len(), "blocks;", measured.Bytes/block, "moved as", measured.Descs, "pieces;", to.Bytes()[0])
	// Output: 8 blocks; 4 moved as 2 pieces; 2
}
