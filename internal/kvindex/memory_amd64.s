//go:build !race

#include "textflag.h"

// func prefetch(line unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ       line+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func prefetchAll(lines *[groupSize]*bucket)
TEXT ·prefetchAll(SB), NOSPLIT, $0-8
	MOVQ       lines+0(FP), SI
	MOVQ       0(SI), AX
	MOVQ       8(SI), BX
	MOVQ       16(SI), CX
	MOVQ       24(SI), DX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	PREFETCHT0 (CX)
	PREFETCHT0 (DX)
	MOVQ       32(SI), AX
	MOVQ       40(SI), BX
	MOVQ       48(SI), CX
	MOVQ       56(SI), DX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	PREFETCHT0 (CX)
	PREFETCHT0 (DX)
	RET

// Stores of this architecture become visible in their order.

// func publish(key *uint64, ref *uint32, k uint64, r uint32)
TEXT ·publish(SB), NOSPLIT, $0-28
	MOVQ key+0(FP), AX
	MOVQ ref+8(FP), BX
	MOVQ k+16(FP), CX
	MOVL r+24(FP), DX
	MOVL DX, (BX)
	MOVQ CX, (AX)
	RET

// func storeKey(key *uint64, k uint64)
TEXT ·storeKey(SB), NOSPLIT, $0-16
	MOVQ key+0(FP), AX
	MOVQ k+8(FP), CX
	MOVQ CX, (AX)
	RET

// func storeRef(ref *uint32, r uint32)
TEXT ·storeRef(SB), NOSPLIT, $0-12
	MOVQ ref+0(FP), AX
	MOVL r+8(FP), CX
	MOVL CX, (AX)
	RET
