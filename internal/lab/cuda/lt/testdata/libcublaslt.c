// A libcublasLt for tests of the binding: functions with the prototypes of cublasLt.h, which
// multiply on the host as their descriptors say. It counts what is made and destroyed.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef CREATE
#define CREATE 0
#endif
#ifndef FOUND
#define FOUND 1
#endif
#define FN __attribute__((visibility("default")))
#define NEED(condition) do { if (!(condition)) return 7; } while (0)

struct desc { int compute, scale, trans_a, trans_b; };
struct layout { int type; uint64_t rows, columns; int64_t ld; };
struct preference { uint64_t workspace; };
struct result { struct { uint64_t data[8]; } algorithm; size_t workspace; int state; float waves; int reserved[4]; };

static int alive, asked;
FN int test_alive(void) { return alive; }
FN int test_asked(void) { return asked; }

FN size_t cublasLtGetVersion(void) { return 120402; }
FN int cublasLtCreate(void **h) { if (CREATE) return CREATE; alive++; *h = &alive; return 0; }
FN int cublasLtDestroy(void *h) { NEED(h == &alive); alive--; return 0; }
FN int cublasLtMatmulDescCreate(struct desc **d, int compute, int scale) {
	NEED(compute == 68 && scale == 0);
	*d = calloc(1, sizeof **d), (*d)->compute = compute, (*d)->scale = scale, alive++;
	return 0;
}
FN int cublasLtMatmulDescDestroy(struct desc *d) { free(d), alive--; return 0; }
FN int cublasLtMatmulDescSetAttribute(struct desc *d, int attribute, const void *value, size_t n) {
	NEED(n == 4 && (attribute == 3 || attribute == 4));
	memcpy(attribute == 3 ? &d->trans_a : &d->trans_b, value, 4);
	return 0;
}
FN int cublasLtMatrixLayoutCreate(struct layout **l, int type, uint64_t rows, uint64_t columns, int64_t ld) {
	NEED((type == 0 || type == 14) && ld >= (int64_t)rows);
	*l = malloc(sizeof **l), **l = (struct layout){type, rows, columns, ld}, alive++;
	return 0;
}
FN int cublasLtMatrixLayoutDestroy(struct layout *l) { free(l), alive--; return 0; }
FN int cublasLtMatmulPreferenceCreate(struct preference **p) { *p = calloc(1, sizeof **p), alive++; return 0; }
FN int cublasLtMatmulPreferenceDestroy(struct preference *p) { free(p), alive--; return 0; }
FN int cublasLtMatmulPreferenceSetAttribute(struct preference *p, int attribute, const void *value, size_t n) {
	NEED(attribute == 1 && n == 8);
	memcpy(&p->workspace, value, 8);
	return 0;
}

// The algorithm says for which sizes it was found.
FN int cublasLtMatmulAlgoGetHeuristic(void *h, struct desc *d, struct layout *a, struct layout *b, struct layout *c, struct layout *out, struct preference *p, int wanted, struct result *r, int *found) {
	NEED(h == &alive && wanted == 1 && c == out && p->workspace == 1 << 20);
	memset(r, 0, sizeof *r);
	r->algorithm.data[0] = out->rows, r->algorithm.data[7] = out->columns, r->workspace = 4096, r->waves = 1;
	asked++, *found = FOUND;
	return 0;
}

static float at(const void *m, const struct layout *l, uint64_t row, uint64_t column) {
	const size_t i = column * l->ld + row;
	if (l->type == 0) return ((const float *)m)[i];
	const uint32_t bits = (uint32_t)((const uint16_t *)m)[i] << 16;
	float v;
	memcpy(&v, &bits, 4);
	return v;
}

FN int cublasLtMatmul(void *h, struct desc *d, const void *alpha, const void *a, struct layout *la, const void *b, struct layout *lb, const void *beta,
	const void *c, struct layout *lc, void *out, struct layout *l, const uint64_t *algorithm, void *workspace, size_t bytes, void *stream) {
	NEED(h == &alive && *(const float *)alpha == 1 && *(const float *)beta == 0 && c == out && lc == l);
	NEED(algorithm[0] == l->rows && algorithm[7] == l->columns && (uintptr_t)workspace == 0x10000 && bytes == 1 << 20 && (uintptr_t)stream == 0x77);
	const uint64_t k = d->trans_a ? la->rows : la->columns;
	NEED((d->trans_a ? la->columns : la->rows) == l->rows && (d->trans_b ? lb->rows : lb->columns) == l->columns && (d->trans_b ? lb->columns : lb->rows) == k);
	for (uint64_t n = 0; n < l->columns; n++)
		for (uint64_t m = 0; m < l->rows; m++) {
			float sum = 0;
			for (uint64_t i = 0; i < k; i++) sum += (d->trans_a ? at(a, la, i, m) : at(a, la, m, i)) * (d->trans_b ? at(b, lb, n, i) : at(b, lb, i, n));
			if (l->type == 0) {
				((float *)out)[n * l->ld + m] = sum;
				continue;
			}
			uint32_t bits;
			memcpy(&bits, &sum, 4);
			((uint16_t *)out)[n * l->ld + m] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
		}
	return 0;
}
