package patience_test

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
)

func TestBuffer(t *testing.T) {
	var b patience.Buffer
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				_, _ = io.WriteString(&b, "a line\n")
				_ = b.String()
			}
		})
	}
	writers.Wait()
	if n := strings.Count(b.String(), "a line\n"); n != 400 || len(b.String()) != 400*len("a line\n") {
		t.Errorf("%d lines", n)
	}
}
