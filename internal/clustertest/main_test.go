package clustertest_test

import (
	"os"
	"testing"

	"github.com/dynctl/dynctl/internal/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main()
	code := m.Run()
	unbuild()
	os.Exit(code)
}
