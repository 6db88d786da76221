package clustertest_test

import (
	"os"
	"testing"

	"github.com/dynctl/dynctl/internal/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main()
	os.Exit(m.Run())
}
