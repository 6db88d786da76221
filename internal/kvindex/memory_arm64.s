//go:build !race

#include "textflag.h"

// func prefetch(line unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVD line+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func prefetchAll(lines *[groupSize]*bucket)
TEXT ·prefetchAll(SB), NOSPLIT, $0-8
	MOVD lines+0(FP), R0
	LDP  0(R0), (R1, R2)
	LDP  16(R0), (R3, R4)
	LDP  32(R0), (R5, R6)
	LDP  48(R0), (R7, R8)
	PRFM (R1), PLDL1KEEP
	PRFM (R2), PLDL1KEEP
	PRFM (R3), PLDL1KEEP
	PRFM (R4), PLDL1KEEP
	PRFM (R5), PLDL1KEEP
	PRFM (R6), PLDL1KEEP
	PRFM (R7), PLDL1KEEP
	PRFM (R8), PLDL1KEEP
	RET

// func publish(key *uint64, ref *uint32, k uint64, r uint32)
TEXT ·publish(SB), NOSPLIT, $0-28
	MOVD  key+0(FP), R0
	MOVD  ref+8(FP), R1
	MOVD  k+16(FP), R2
	MOVWU r+24(FP), R3
	STLRW R3, (R1)
	STLR  R2, (R0)
	RET

// func storeKey(key *uint64, k uint64)
TEXT ·storeKey(SB), NOSPLIT, $0-16
	MOVD key+0(FP), R0
	MOVD k+8(FP), R1
	STLR R1, (R0)
	RET

// func storeRef(ref *uint32, r uint32)
TEXT ·storeRef(SB), NOSPLIT, $0-12
	MOVD  ref+0(FP), R0
	MOVWU r+8(FP), R1
	STLRW R1, (R0)
	RET
