package clustertest_test

import (
	"flag"
	"os"
	"testing"

	"github.com/dynctl/dynctl/internal/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main()
	// Clusters wait for leases, processes and each other about as long as they compute.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	code := m.Run()
	unbuild()
	os.Exit(code)
}
