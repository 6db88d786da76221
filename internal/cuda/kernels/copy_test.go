package kernels_test

import (
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// Pieces are as long as they are, less than and more than what a block copies.
func TestCopy(t *testing.T) {
	for _, size := range []int{16, 4096, 64<<10 + 48} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			compare(t, func(l *lab, q *kernels.Queue) {
				const room, pieces = 7, 4
				var to, from []int64
				for _, i := range l.Perm(room)[:pieces] {
					to = append(to, int64(i*size))
				}
				for range pieces {
					from = append(from, int64(l.IntN(room)*size)) // one piece may go to several places
				}
				l.must(q.Copy(kernels.Copy{
					To: l.out("pieces", room*size, exact), From: l.values(room*size/2, 1),
					ToOffsets: l.int64s(to...), FromOffsets: l.int64s(from...), Pieces: pieces, Bytes: size,
				}))
			})
		})
	}
}
