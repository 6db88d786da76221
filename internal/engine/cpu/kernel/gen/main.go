// Command gen writes the assembly of package kernel. It is run by go generate and
// linked into no program.
package main

import (
	"fmt"
	"os"
)

// files are all that is generated, by name in the package's folder.
func files() map[string]string {
	return map[string]string{
		"product_avx512_amd64.s":   products(avx512),
		"product_avx2_amd64.s":     products(avx2),
		"pairs_avx512_amd64.s":     pairProducts(),
		"tiles_amx_amd64.s":        tiles(),
		"tiles_int8_amd64.s":       tilesInt8(),
		"vector_avx512_amd64.s":    vectors(avx512),
		"vector_avx2_amd64.s":      vectors(avx2),
		"block_avx512_amd64.s":     blockProducts(vnni512),
		"block_avx2_amd64.s":       blockProducts(pairs, vnni256),
		"attention_avx512_amd64.s": attention(avx512),
		"attention_avx2_amd64.s":   attention(avx2),
		"attention_pairs_amd64.s":  attentionPairs(),
		"transpose_amd64.s":        transposes(),
		"peak_amd64.s":             peaks(),
		"decl_attention_amd64.go":  attentionDeclarations(),
		"decl_amd64.go":            declarations(),
		"product_neon_arm64.s":     neonProducts(),
		"vector_neon_arm64.s":      neonVectors(),
		"block_neon_arm64.s":       neonBlocks(),
		"block_i8mm_arm64.s":       neonMatrices(),
		"dots_neon_arm64.s":        neonBF16s(),
		"attention_neon_arm64.s":   neonAttention(),
		"decl_attention_arm64.go":  neonAttentionDeclarations(),
		"peak_arm64.s":             neonPeaks(),
		"decl_arm64.go":            neonDeclarations(),
	}
}

func main() {
	for name, text := range files() {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}
