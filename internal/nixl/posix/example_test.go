//go:build linux

package posix_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/posix"
)

// A block goes to a file. An agent that transfers to itself uses its storage.
func Example() {
	dir, err := os.MkdirTemp("", "nixl")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "blocks")
	file, err := posix.Open("rw,create:"+path, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	agent, err := nixl.NewAgent(nixl.Config{Name: "a", Storage: posix.New(posix.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = agent.Close() }()

	pool, err := nixl.NewArena(4096)
	if err != nil {
		log.Fatal(err)
	}
	regions, err := agent.RegisterAll([]nixl.Registration{{Memory: pool, Type: nixl.DRAM}, {Memory: file, Type: nixl.FILE}})
	if err != nil {
		log.Fatal(err)
	}
	block, slot := regions[0].Desc(0, 4096), regions[1].Desc(2*4096, 4096)
	t, err := agent.NewTransfer(nixl.Write, []nixl.Desc{block}, []nixl.Desc{slot}, agent.Name(), nixl.TransferOpts{})
	if err != nil {
		log.Fatal(err)
	}
	t.Post()
	if err := t.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}
	info, err := agent.QueryMem(context.Background(), nixl.FILE, path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info[0].Exists, info[0].Size)
	// Output: true 12288
}
