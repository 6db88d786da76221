package gpucheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// TilesFile has the fastest tile for each product that was tuned, as package kernels reads
// it.
const TilesFile = "tiles.txt"

// tunedTokens are the numbers of tokens that every tile is measured with.
var tunedTokens = []int{128, 256, 512, 1024, 2048, 8192}

// tuned names a case: a product, and the tile that computes it.
func tuned(m kernels.MeasuredTile) string {
	return fmt.Sprintf("gemm/rows=%d,in=%d,tokens=%d/%s", m.Rows, m.In, m.Tokens, m.Kernel)
}

// tunedOf reads the name of a result.
func tunedOf(name string) (m kernels.MeasuredTile, ok bool) {
	n, _ := fmt.Sscanf(name, "tune/gemm/rows=%d,in=%d,tokens=%d/%s", &m.Rows, &m.In, &m.Tokens, &m.Kernel)
	return m, n == 4
}

// tuneCases measure every tile with the products of all shapes, those that are alike once.
func tuneCases() (all []Case) {
	seen := map[[2]int]bool{}
	for _, s := range shapes {
		for i, p := range s.products() {
			size := [2]int{p.rows, p.in}
			if p.wide || seen[size] {
				continue
			}
			seen[size] = true
			for _, tokens := range tunedTokens {
				for _, tile := range kernels.Tiles {
					m := kernels.MeasuredTile{Rows: p.rows, In: p.in, Tokens: tokens, Kernel: tile.Kernel}
					all = append(all, Case{Name: tuned(m), run: func(ctx context.Context, r *rig) (finding, error) {
						if err := r.exact(); err != nil {
							return finding{}, err
						}
						return r.job(ctx, func(j *job) work {
							t := j.tuning()
							t.Tile = tile.Kernel
							return j.product(s, i, tokens, j.q.Tune(t).GEMM)
						})
					}})
				}
			}
		}
	}
	return all
}

// Tiles are the fastest tiles that results have found: a table for package kernels, empty
// where nothing was tuned on a device.
func Tiles(results []Result) []kernels.MeasuredTile {
	type found struct {
		kernels.MeasuredTile
		took float64
	}
	best := map[kernels.MeasuredTile]found{} // by what is computed
	for _, r := range results {
		m, ok := tunedOf(r.Case)
		if !ok || r.End != Passed || r.Pretended || r.Figure <= 0 {
			continue
		}
		product := m
		product.Kernel = ""
		if b, known := best[product]; !known || r.Figure < b.took {
			best[product] = found{m, r.Figure}
		}
	}
	var table []kernels.MeasuredTile
	for _, b := range best {
		table = append(table, b.MeasuredTile)
	}
	slices.SortFunc(table, func(a, b kernels.MeasuredTile) int {
		return cmp.Or(cmp.Compare(a.Rows, b.Rows), cmp.Compare(a.In, b.In), cmp.Compare(a.Tokens, b.Tokens))
	})
	return table
}
