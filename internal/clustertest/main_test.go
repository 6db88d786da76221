package clustertest_test

import (
	"os"
	"testing"

	"github.com/dynctl/dynctl/internal/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main()
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built) // below the directory for temporary files in any case
	}
	os.Exit(code)
}
